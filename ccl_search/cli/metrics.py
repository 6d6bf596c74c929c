"""`metrics`: the catalogue of metric tools, what each means, and their values for a trace."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ccl_search.cli.output import HomeOption, JsonFlag, console, print_json

if TYPE_CHECKING:
    from metrics.facts import CardFacts
    from metrics.tool import MetricTool
    from runs.metric import MetricSpec, MetricValue

app = typer.Typer(help="Metric tools: list them, explain one, compute values of a trace.", no_args_is_help=True)

MetricOption = Annotated[
    list[str] | None, typer.Option("--metric", "-m", metavar="NAME", help="Only this metric; may be given again.")
]
RuleOption = Annotated[
    str,
    typer.Option("--rule", metavar="sound|paper", help="Give kernels to steps by launch, or clip them to host spans."),
]


@app.command("list")
def list_metrics(as_json: JsonFlag = False) -> None:
    """All metric tools, third-party ones too."""
    from metrics import registry

    tools = registry.every_tool()
    specs = [tool.SPEC for tool in tools.values()]
    if as_json:
        print_json({"metrics": [_described(tool) for tool in tools.values()]})
        return
    rows = [(s.name, s.unit, _arrow(s), ", ".join(s.formats) or "all", s.description) for s in specs]
    _table(f"{len(specs)} metrics", ("metric", "unit", "better", "traces", "what it is"), rows)


def _table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A table on stderr whose names are never cut and whose texts are shown as they are."""
    from rich.table import Table
    from rich.text import Text

    table = Table(title=Text(title), title_justify="left")
    for number, column in enumerate(columns):
        right = column.startswith(">")
        table.add_column(
            column.lstrip(">"), justify="right" if right else "left", no_wrap=number == 0 or right, overflow="fold"
        )
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    console().print(table)


def _arrow(spec: MetricSpec) -> str:
    return "lower" if spec.direction.value == "minimize" else "higher"


def _described(tool: MetricTool) -> dict[str, Any]:
    from metrics import registry

    spec = tool.SPEC
    return {
        "name": spec.name, "version": spec.version, "unit": spec.unit, "direction": spec.direction.value,
        "label": spec.label, "description": spec.description, "formats": list(spec.formats),
        "phases": list(spec.phases), "aliases": list(spec.aliases), "variants": registry.variants_of(tool),
        "bundled": spec.name in registry.BUNDLED,
    }  # fmt: skip


@app.command("explain")
def explain(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A metric or an alias of one.")], as_json: JsonFlag = False
) -> None:
    """What a metric means, how it is computed, and its other readings."""
    from inspect import cleandoc

    from metrics import registry

    tool = registry.tool(name)
    text = cleandoc(tool.__doc__ or "")
    if as_json:
        print_json(_described(tool) | {"definition": text})
        return
    out, spec = console(), tool.SPEC
    out.print(f"{spec.name} {spec.version}: {spec.unit}, {_arrow(spec)} is better", style="bold", markup=False)
    out.print(text, markup=False)
    for variant, meaning in registry.variants(name).items():
        out.print(f"--variant {variant}: {meaning}", markup=False)


@app.command("compute")
def compute(
    trace_dir: Annotated[
        Path, typer.Argument(metavar="TRACE_DIR", help="Folder (or file) with the profiler's output.")
    ],
    card: Annotated[
        Path | None, typer.Option("--card", help="Workload card; card.yaml in the folder is the default.")
    ] = None,
    metric: MetricOption = None,
    rule: RuleOption = "sound",
    variant: Annotated[
        str | None, typer.Option("--variant", metavar="NAME", help="Another reading (see explain).")
    ] = None,
    detail: Annotated[
        bool, typer.Option("--detail", help="Values per rank and step, and where they come from.")
    ] = False,
    no_cache: Annotated[bool, typer.Option("--no-cache", help="Read the trace again and keep nothing.")] = False,
    home: HomeOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Values of a trace. A metric without a value says why; what was lost reading the trace is a warning."""
    from metrics import api

    values = api.compute(
        trace_dir, facts=_facts(trace_dir, card), metrics=metric, rule=rule,  # type: ignore[arg-type]
        variant=variant, detail=detail, cache=None if no_cache else cache_folder(home),
    )  # fmt: skip
    warnings = list(dict.fromkeys(warning for value in values.values() for warning in value.warnings))
    if as_json:
        metrics = {name: _plain(value, detail) for name, value in values.items()}
        print_json({"trace": str(trace_dir), "metrics": metrics, "warnings": warnings})
        return
    _show(trace_dir, values, warnings, detail)


def cache_folder(home: str | None) -> Path:
    """Where the columns of traces already read are kept: below the folder of the store."""
    return Path(home or "ccl-runs") / "cache" / "traces"


def _facts(trace_dir: Path, card: Path | None) -> CardFacts:
    from metrics.facts import CardFacts

    beside = trace_dir / "card.yaml"
    found = card or (beside if beside.is_file() else None)
    return CardFacts.from_card_yaml(found) if found is not None else CardFacts()


def _plain(value: MetricValue, detail: bool) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "value": value.value, "unit": value.unit, "reason": value.reason, "version": value.version,
    }  # fmt: skip
    return shown | {"detail": value.detail} if detail else shown


def _show(trace_dir: Path, values: dict[str, MetricValue], warnings: list[str], detail: bool) -> None:
    rows = [(name, *_cells(value)) for name, value in values.items()]
    _table(str(trace_dir), ("metric", ">value", "unit", "why there is none"), rows)
    out = console()
    if detail:
        for name, value in values.items():
            for line in _detail_lines(value):
                out.print(f"{name}: {line}", markup=False)
    for warning in warnings:
        out.print(f"warning: {warning}", style="yellow", markup=False)


def _cells(value: MetricValue) -> tuple[str, str, str]:
    if value.value is None:
        return "", value.unit, value.reason or ""
    return f"{value.value:.6g}", value.unit, ""


def _detail_lines(value: MetricValue) -> list[str]:
    lines = []
    for key, content in (value.detail or {}).items():
        entries = content if isinstance(content, list) and content and isinstance(content[0], dict) else None
        if entries is None:
            lines.append(f"{key} = {content}")
        else:
            lines += [f"{key}: " + ", ".join(f"{k} {v}" for k, v in entry.items()) for entry in entries]
    return lines
