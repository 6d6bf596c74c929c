"""Stands in for ASTRA-sim: does what the real program was seen to do on one input, hangs and crashes included.

    python standin.py ROW [flags]

ROW is a file: the exit code (negative: a signal; -9: it never ended), how many ranks report, the cycles, and what it
printed last (lines joined by ` | `), each on a line of its own. Four more lines are what it does where flow.txt exists.

It starts often, so it imports nothing that takes time.
"""

import posix
import sys


def say(text: str) -> None:
    """Print where the real program does: its logger on stdout, everything else on stderr."""
    (sys.stdout if text.startswith("[20") else sys.stderr).write(text + "\n")


def report(rank: int, wall: str) -> None:
    """What a rank says at its end."""
    stamp = "[2026-11-30 07:51:21.453]"
    say(f"{stamp} [workload] [info] sys[{rank}] finished, {wall} cycles, exposed communication {wall} cycles.")
    say(f"{stamp} [statistics] [info] sys[{rank}], Wall time: {wall}")
    say(f"{stamp} [statistics] [info] sys[{rank}], Comm time: {wall}")


def main() -> None:
    """Play the row."""
    with open(sys.argv[1], encoding="utf-8") as stream:  # noqa: PTH123
        lines = stream.read().split("\n")
    if len(lines) > 4 and "flow.txt" in posix.listdir("."):
        lines = lines[4:]
    code, wall = int(lines[0]), lines[2]
    for rank in range(int(lines[1])):
        report(rank, wall)
    for line in lines[3].split(" | "):
        say(line)
    sys.stdout.flush()
    if code == -9:
        hang()
    if code < 0:
        posix.kill(posix.getpid(), -code)
    sys.exit(code)


def hang() -> None:
    """Never end, deaf to polite signals, with a child of its own."""
    import signal
    import time

    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    child = posix.fork()
    if child:
        with open("child.pid", "w", encoding="utf-8") as stream:  # noqa: PTH123
            stream.write(str(child))
    time.sleep(60)


main()
