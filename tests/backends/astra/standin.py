"""Stands in for ASTRA-sim: does what the real program was seen to do on one input, hangs and crashes included.

    python standin.py ROW.json [flags]

ROW.json holds `exit` (negative: a signal; -9: it never ended), `finished` (how many ranks report), `wall` (cycles) and
`message` (what it printed last, lines joined by ` | `).
"""

import json
import os
import sys
from pathlib import Path


def say(text: str) -> None:
    """Print where the real program does: its logger on stdout, everything else on stderr."""
    stream = sys.stdout if text.startswith("[20") else sys.stderr
    stream.write(text + "\n")


def report(rank: int, wall: int) -> None:
    say(
        f"[2026-11-30 07:51:21.453] [workload] [info] sys[{rank}] finished, {wall} cycles, "
        f"exposed communication {wall} cycles."
    )
    say(f"[2026-11-30 07:51:21.453] [statistics] [info] sys[{rank}], Wall time: {wall}")
    say(f"[2026-11-30 07:51:21.453] [statistics] [info] sys[{rank}], Comm time: {wall}")


def main() -> None:
    row = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    for rank in range(row["finished"]):
        report(rank, row["wall"])
    for line in row["message"].split(" | "):
        say(line)
    sys.stdout.flush()
    if row["exit"] == -9:
        hang()
    if row["exit"] < 0:
        os.kill(os.getpid(), -row["exit"])
    sys.exit(row["exit"])


def hang() -> None:
    """Never end, deaf to polite signals, with a child of its own."""
    import signal
    import subprocess
    import time

    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    child = subprocess.Popen([sys.executable, "-I", "-S", "-c", "import time; time.sleep(60)"])
    Path("child.pid").write_text(str(child.pid), encoding="utf-8")
    time.sleep(60)


main()
