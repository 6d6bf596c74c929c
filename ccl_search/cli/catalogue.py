"""`workloads`, `environments`, `targets`: what is bundled and ready to use."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ccl_search.cli.output import JsonFlag, print_json, print_table

if TYPE_CHECKING:
    from ccl_search.targets import Target


def workloads(as_json: JsonFlag = False) -> None:
    """List the bundled workloads: the seven of CCL-Bench 1.0 and four MoE prefills."""
    from runs import catalogue

    found = [_workload(name) for name in catalogue.workload_names()]
    if as_json:
        print_json(found)
        return
    rows = [
        [w["name"], w["model_family"], w["phase"], str(w["batch_size"]), str(w["seq_len"]), _billions(w)] for w in found
    ]
    print_table("workloads", ["name!", "model!", "phase", ">global batch", ">tokens", ">parameters"], rows)


def environments(as_json: JsonFlag = False) -> None:
    """List the bundled environments. NAME-COUNT takes any whole number of nodes."""
    from runs import catalogue

    found = []
    for name in catalogue.environment_names():
        where = catalogue.environment(name)
        found.append({"name": name, **where.policy_input(), "nics_per_node": where.nics_per_node})
    if as_json:
        print_json(found)
        return
    rows = [
        [
            e["name"],
            e["gpu_model"],
            str(e["total_gpus"]),
            str(e["gpus_per_node"]),
            f"{e['gpu_memory_gb']:g}",
            f"{e['intra_node_bandwidth_gbps']:g}",
            f"{e['nics_per_node']} x {e['inter_node_bandwidth_gbps']:g}",
        ]
        for e in found
    ]
    columns = ["name!", "device!", ">devices", ">a node", ">GB", ">scale-up Gb/s", ">scale-out Gb/s a node"]
    print_table("environments", columns, rows)


def targets(
    files: Annotated[list[Path] | None, typer.Argument(help="Target files to check and list too.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """List the targets: where configs can run. The dry run is bundled; others are described by target files."""
    from ccl_search import targets as known

    found = [_target(target) for target in (*known.bundled(), *map(known.read, files or []))]
    if as_json:
        print_json(found)
        return
    rows = [[str(t[key] or "") for key in ("name", "kind", "fidelity", "environment", "description")] for t in found]
    print_table("targets", ["name!", "kind!", "fidelity", "environment!", "what it is"], rows)


def _target(target: Target) -> dict[str, Any]:
    return {
        "name": target.name,
        "kind": target.kind,
        "fidelity": target.fidelity.value,
        "backend": target.backend,
        "environment": target.environment,
        "parallel": target.parallel,
        "description": target.description,
    }


def _workload(name: str) -> dict[str, Any]:
    from runs import catalogue

    return {**catalogue.workload(name).policy_input(), "name": name}


def _billions(workload: dict[str, Any]) -> str:
    count = workload.get("num_params")
    return f"{count / 1e9:.1f} B" if count else "not published"
