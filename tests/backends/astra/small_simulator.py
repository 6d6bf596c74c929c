"""A program with ASTRA-sim's interface that really runs the traces: every transfer takes a microsecond.

    python small_simulator.py [--delay=NS] --workload-configuration=… and the other flags of ASTRA-sim

It reads what the driver staged, prints the results of ranks as ASTRA-sim does, and writes the operations that the
logging configuration asks for. `--never` ends nothing, like ns-3 on inputs that deadlock.
"""

from __future__ import annotations

import re
import sys
import time
from pathlib import Path

from backends.exchange.execution import Calls, Execution, UnitTransport
from backends.exchange.inputs import AstraInputs, load_inputs
from backends.exchange.operations import CollectiveCall, MessageCall, operation
from backends.exchange.raw import figures_of


def main() -> None:
    """Run the inputs in the current folder's flags."""
    flags = dict(word.removeprefix("--").partition("=")[::2] for word in sys.argv[1:])
    if "never" in flags:
        time.sleep(60)
    inputs = _inputs(flags)
    calls = [[(node, operation(inputs, r, node)) for node in trace.nodes] for r, trace in enumerate(inputs.traces)]
    spans = Execution(inputs, calls, UnitTransport()).run()
    named = re.search(r'filename = "(.*)"', Path(flags["logging-configuration"]).read_text(encoding="utf-8"))
    assert named is not None
    log = Path(named[1]).open("w", encoding="utf-8")  # noqa: SIM115
    for rank, mine in enumerate(spans):
        for span in mine:
            about = f"node->id={span.node.id}, node->name={span.node.name}, node->type={int(span.node.kind)}"
            log.write(f"issue,sys->id={rank}, tick={span.start}, {about}\n")
            log.write(f"callback,sys->id={rank}, tick={span.end}, {about}\n")
        own = figures_of(mine)
        print(f"[workload] [info] sys[{rank}] finished, {own.wall} cycles, exposed communication 0 cycles.")
        for name, value in (("Wall", own.wall), ("GPU", own.compute), ("Comm", own.operations)):
            print(f"[statistics] [info] sys[{rank}], {name} time: {value}")
    log.close()
    if "network.txt" in flags["network-configuration"]:
        _flows(calls)


def _inputs(flags: dict[str, str]) -> AstraInputs:
    ns3 = "logical-topology-configuration" in flags
    groups = flags.get("comm-group-configuration")
    return load_inputs(
        Path(flags["workload-configuration"]), Path(flags["system-configuration"]),
        network=None if ns3 else Path(flags["network-configuration"]), physical=Path("physical.txt") if ns3 else None,
        comm_group=Path(groups) if groups else None, remote_memory=Path(flags["remote-memory-configuration"]),
        logical=Path(flags["logical-topology-configuration"]) if ns3 else None,
        ns3_config=Path(flags["network-configuration"]) if ns3 else None,
    )  # fmt: skip


def _flows(calls: Calls) -> None:
    """One finished flow for each message, and for each neighbour in a collective."""
    with Path("fct.txt").open("w", encoding="utf-8") as stream:
        for rank, mine in enumerate(calls):
            for _, what in mine:
                if isinstance(what, MessageCall) and what.sends:
                    _flow(stream, what.source, what.target, what.size)
                elif isinstance(what, CollectiveCall):
                    after = what.members[(what.members.index(rank) + 1) % len(what.members)]
                    _flow(stream, rank, after, what.size)


def _flow(stream: object, source: int, target: int, size: int) -> None:
    ends = " ".join(f"{0x0B000001 + (end // 256 << 16) + (end % 256 << 8):08x}" for end in (source, target))
    print(f"{ends} 10000 100 {max(1, size)} 0 1000 900", file=stream)  # type: ignore[call-overload]


main()
