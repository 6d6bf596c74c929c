"""Errors a user can act on: one line with the cause, one with the hint, one exit code per family."""

from __future__ import annotations


class CclSearchError(Exception):
    """Base of every error the product raises on purpose.

    `message` says what is wrong and where, `hint` what to do about it; `exit_code` is what the CLI returns.
    """

    exit_code = 1

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class BadInputError(CclSearchError):
    """Usage or an input file is wrong: exit code 2."""

    exit_code = 2


class TargetUnavailableError(CclSearchError):
    """The place where trials should run cannot be reached or used: exit code 3."""

    exit_code = 3


class TargetBusyError(TargetUnavailableError):
    """The target does not answer, or takes no more jobs, just now: the same question may be answered later."""


class BudgetExhaustedError(CclSearchError):
    """A budget ended before there was any result: exit code 4."""

    exit_code = 4


class UnverifiableError(CclSearchError):
    """Evidence that a claim needs is missing: exit code 5."""

    exit_code = 5
