"""Searches over real programs on this machine: a target file, a space, and a program that writes Kineto traces."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path

PROGRAM = """
import json, os, sys
def knob(name): return int(os.environ["CCL_SEARCH_KNOB_" + name.upper()])
world, profiled = int(os.environ["CCL_WORLD_SIZE"]), os.environ["CCL_SEARCH_PROFILE"] == "true"
length = 25000.0 * knob("tp") / knob("micro_batch_size")      # microseconds of a step
with open(os.environ["CCL_TRACE_DIR"] + "/../started", "a") as stream:
    stream.write("profiled\\n" if profiled else "plain\\n")
warm, steps = int(os.environ["CCL_SEARCH_WARMUP_STEPS"]), int(os.environ["CCL_SEARCH_PROFILED_STEPS"])
for number in range(1, warm + steps + 1):
    slower = 1.25 if profiled and number > warm else 1.0
    print("step", number, "took", round(length * slower / 1000, 3), "ms")
if not profiled:
    sys.exit(0)
for rank in range(world):
    events = []
    for number in range(steps):
        start = 1e9 + number * length
        events.append({"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{number}", "pid": rank, "tid": 1,
                       "ts": start, "dur": length})
        events.append({"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": start + 20,
                       "dur": 0.9 * length, "args": {"device": 0, "stream": 7, "correlation": number}})
    document = {"schemaVersion": 1, "distributedInfo": {"backend": "nccl", "rank": rank, "world_size": world},
                "traceEvents": events}
    with open(f"{os.environ['CCL_TRACE_DIR']}/rank{rank}_trace.json", "w") as stream:
        json.dump(document, stream)
"""
SPACE = """
name: small
world_size: tp * dp
knobs:
  - {key: tp, type: int, choices: [4, 8], description: tensor-parallel degree}
  - {key: dp, type: int, choices: [1], description: data-parallel degree}
  - {key: micro_batch_size, type: int, choices: [1, 2], description: sequences}
"""
STEP_LOG = r"step (?P<step>\d+) took (?P<ms>[\d.]+) ms"


def write(folder: Path, space: str = SPACE, **framework: object) -> list[str]:
    """The files of a search, and the words of `run` that name them. `framework` is added to the target's section."""
    (folder / "program.py").write_text(PROGRAM)
    section = {"command": [sys.executable, "-S", str(folder / "program.py")]}
    section |= {"traces": ["rank*_trace.json"], **framework}
    target = {"name": "here", "kind": "local", "environment": "h100-8", "framework": {"command": section}}
    (folder / "target.yaml").write_text(json.dumps(target))
    (folder / "space.yaml").write_text(space)
    return _words(folder, "command")


def write_torchtitan(folder: Path, standin: Path, space: str, version: str) -> list[str]:
    """As `write`, for the stand-in of TorchTitan."""
    target = {
        "name": "here", "kind": "local", "environment": "h100-8",
        "setup": f'export PATH={shlex.quote(str(standin.parent))}:"$PATH"',
        "framework": {"torchtitan": {"version": version}},
    }  # fmt: skip
    (folder / "target.yaml").write_text(json.dumps(target))
    (folder / "space.yaml").write_text(space)
    return _words(folder, "torchtitan")


def _words(folder: Path, framework: str) -> list[str]:
    words = ["run", "--workload", "wl4", "--framework", framework, "--space", str(folder / "space.yaml")]
    return [*words, "--target", str(folder / "target.yaml"), "--proposer", "grid", "--json"]
