"""The options of `run`, in the order of its help: what to search, how, with which budgets, and where."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

_SUBJECT = "What to search"
_HOW = "How to search"
_BUDGET = "Budgets"
_WHERE = "Where"

CONFIG_HELP = "Knobs, as tp=4,dp=2,micro_batch_size=1; the others ask for nothing."
Config = Annotated[str, typer.Option("--config", help=CONFIG_HELP)]
Card = Annotated[Path | None, typer.Option(help="Workload card (CCL-Bench YAML).", rich_help_panel=_SUBJECT)]
Workload = Annotated[
    str | None, typer.Option(help="Bundled workload, see `workloads`.", show_default="wl4", rich_help_panel=_SUBJECT)
]
Environment = Annotated[
    str | None,
    typer.Option(
        help="Bundled environment, see `environments`.", show_default="perlmutter-a100-16", rich_help_panel=_SUBJECT
    ),
]
Framework = Annotated[
    str | None,
    typer.Option(
        help="torchtitan, megatron-lm, maxtext, vllm, sglang or command.",
        show_default="torchtitan",
        rich_help_panel=_SUBJECT,
    ),
]
Space = Annotated[
    str | None,
    typer.Option(
        help="Config space (YAML file or bundled name) instead of the framework's default.", rich_help_panel=_SUBJECT
    ),
]
Objective = Annotated[
    list[str] | None,
    typer.Option(
        help="Metric to optimise; repeat for a composite.", show_default="step_time", rich_help_panel=_SUBJECT
    ),
]
Weights = Annotated[
    str | None, typer.Option(help="Weights of a composite, as 0.5,0.5; equal when not given.", rich_help_panel=_SUBJECT)
]
Baseline = Annotated[
    list[str] | None,
    typer.Option(help="Baseline of a composite's metric, as NAME=VALUE; else trial 0's.", rich_help_panel=_SUBJECT),
]
Constraint = Annotated[
    list[str] | None,
    typer.Option(
        help="Bound on a metric or a knob, as 'peak_memory_gb <= 38'; repeat for several.", rich_help_panel=_SUBJECT
    ),
]
Pareto = Annotated[
    bool,
    typer.Option(
        "--pareto",
        help="Search the whole Pareto front of 2 to 4 objectives, not only the best composite score.",
        rich_help_panel=_SUBJECT,
    ),
]
Portable = Annotated[
    bool,
    typer.Option(
        "--portable",
        help="Make how the policy does on other clusters part of the score: 0.2 of it, or the last of --weights.",
        rich_help_panel=_SUBJECT,
    ),
]
Repeats = Annotated[int, typer.Option(min=1, help="Measure every config this many times.", rich_help_panel=_HOW)]
Policy = Annotated[
    Path | None, typer.Option(help="Policy to start from instead of the bundled seed.", rich_help_panel=_HOW)
]
Proposer = Annotated[
    str | None,
    typer.Option(
        help="claude, guided, tpe, random or grid.",
        show_default="claude with ANTHROPIC_API_KEY set, else guided",
        rich_help_panel=_HOW,
    ),
]
Model = Annotated[str, typer.Option(help="Model of the claude proposer.", rich_help_panel=_HOW)]
Effort = Annotated[
    str | None, typer.Option(help="How hard the model thinks: low, medium, high, xhigh or max.", rich_help_panel=_HOW)
]
FallbackModel = Annotated[
    list[str] | None,
    typer.Option(help="Model to ask when the first one refuses; repeat for several.", rich_help_panel=_HOW),
]
Prices = Annotated[
    Path | None,
    typer.Option(help="Price rows (YAML) that take precedence over the bundled ones.", rich_help_panel=_HOW),
]
ReplayLlm = Annotated[
    str | None, typer.Option(help="Serve LLM answers from this stored run; no network is used.", rich_help_panel=_HOW)
]
Sandbox = Annotated[str, typer.Option(help="Where policies run: monty or process.", rich_help_panel=_HOW)]
Unconfined = Annotated[
    bool,
    typer.Option(
        "--unconfined", help="Let the process sandbox run without bubblewrap or Landlock.", rich_help_panel=_HOW
    ),
]
Seed = Annotated[int, typer.Option(help="Seed of everything random.", rich_help_panel=_HOW)]
_ITERATIONS = typer.Option(min=0, help="Iterations after the seed policy.", rich_help_panel=_BUDGET)
Iterations = Annotated[int, _ITERATIONS]
NewIterations = Annotated[int | None, _ITERATIONS]
Patience = Annotated[
    int | None,
    typer.Option(min=1, help="Stop after this many iterations without improvement.", rich_help_panel=_BUDGET),
]
MaxCost = Annotated[
    str | None, typer.Option(help="Stop when the LLM has cost this many dollars.", rich_help_panel=_BUDGET)
]
MaxXpuHours = Annotated[
    float | None, typer.Option(help="Stop after this many accelerator-hours.", rich_help_panel=_BUDGET)
]
MaxMinutes = Annotated[float | None, typer.Option(help="Stop after this many minutes.", rich_help_panel=_BUDGET)]
NewTimeLimit = Annotated[
    float | None, typer.Option(help="Longest run of one trial, in seconds.", rich_help_panel=_BUDGET)
]
TimeLimit = Annotated[
    float | None,
    typer.Option(
        help="Longest run of one trial, in seconds.", show_default="the target's, else 3600", rich_help_panel=_BUDGET
    ),
]
_RETRIES = typer.Option(min=0, help="Repeats of a trial that the machines failed.", rich_help_panel=_BUDGET)
Retries = Annotated[int, _RETRIES]
NewRetries = Annotated[int | None, _RETRIES]
Target = Annotated[
    str, typer.Option(help="Where configs run: a target of `targets`, or a target file (YAML).", rich_help_panel=_WHERE)
]
Backend = Annotated[
    str | None,
    typer.Option(
        help="Simulator of the dry run: flow is built in, astra-sim and astra-sim-ns3 are your own programs.",
        show_default="flow",
        rich_help_panel=_WHERE,
    ),
]
Screen = Annotated[
    str | None,
    typer.Option(
        help="Simulate proposals before they are launched: dry-run[:K], or a dry-run target file[:K]. Hopeless ones go "
        "back to the proposer; the best predicted of K candidates is launched.",
        rich_help_panel=_WHERE,
    ),
]
ScreenCheck = Annotated[
    float,
    typer.Option(
        min=0.0,
        max=1.0,
        help="Share of hopeless proposals that is launched all the same, to see whether the screen errs.",
        rich_help_panel=_WHERE,
    ),
]
NewParallel = Annotated[int | None, typer.Option(min=1, help="Trials in flight at once.", rich_help_panel=_WHERE)]
Parallel = Annotated[
    int | None,
    typer.Option(min=1, help="Trials in flight at once.", show_default="the target's, else 1", rich_help_panel=_WHERE),
]
WithinAllocation = Annotated[
    bool,
    typer.Option(
        "--within-allocation", help="Run trials in the Slurm allocation this process is in.", rich_help_panel=_WHERE
    ),
]
KeepTraces = Annotated[
    str, typer.Option(help="Traces to keep once they are scored: all, best or none.", rich_help_panel=_WHERE)
]
TraceRanks = Annotated[
    int | None,
    typer.Option(
        min=1, help="Measure and keep the traces of so many ranks only.", show_default="all", rich_help_panel=_WHERE
    ),
]
ProfilerCost = Annotated[
    bool,
    typer.Option(
        help="End with one run without the profiler, where its cost on the target is not known yet.",
        rich_help_panel=_WHERE,
    ),
]
