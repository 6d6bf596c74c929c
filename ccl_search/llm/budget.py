"""The dollar budget of a run's LLM calls: reserved before a call, settled after it."""

from __future__ import annotations

from decimal import Decimal
from typing import Protocol

from ccl_search.llm.errors import LlmBudgetError
from runs.errors import BadInputError


class SpendGuard(Protocol):
    """Asked before every call and told after it, in dollars; None where the amount is not known."""

    def reserve(self, estimate: Decimal | None) -> None:
        """Allow a call that may cost `estimate`.

        Raises:
            LlmBudgetError: it could cost more than is left.
            BadInputError: its price is not known although there is a limit.
        """
        ...

    def settle(self, cost: Decimal | None) -> None:
        """Replace the reservation by what the call cost; None keeps the reservation as spent."""
        ...


class DollarBudget:
    """A limit in dollars over all calls of a run; without one it only counts.

    A call whose cost is not known (no answer came, but the API may have billed it) counts with its reservation.
    `spent` starts with what earlier processes of the run spent.
    """

    def __init__(self, limit: Decimal | None = None, spent: Decimal = Decimal(0)) -> None:
        self.limit = limit
        self.spent = spent
        self._reserved = Decimal(0)

    @property
    def left(self) -> Decimal | None:
        """Dollars that remain; None without a limit."""
        return None if self.limit is None else self.limit - self.spent

    def reserve(self, estimate: Decimal | None) -> None:
        """See `SpendGuard.reserve`."""
        if self.limit is not None:
            self._check(estimate, self.limit)
        self._reserved = estimate or Decimal(0)

    def settle(self, cost: Decimal | None) -> None:
        """See `SpendGuard.settle`."""
        self.spent += self._reserved if cost is None else cost
        self._reserved = Decimal(0)

    def _check(self, estimate: Decimal | None, limit: Decimal) -> None:
        if estimate is None:
            raise BadInputError(
                "the price of the model is not known, so the LLM budget cannot be kept",
                "add a price row (docs/llm.md) or drop the dollar limit",
            )
        if self.spent + estimate > limit:
            raise LlmBudgetError(
                f"${self.spent:.2f} of the LLM budget of ${limit:.2f} are spent "
                f"and the next call may cost ${estimate:.2f}",
                "raise the dollar limit and resume the run",
            )
