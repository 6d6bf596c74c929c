"""The script of a job: one text for Slurm, an allocation and this machine, which differ in who starts the processes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from launchers.shell.command import Command
from launchers.shell.layout import RESULT_FILE, Attempt
from launchers.shell.quoting import export, here_document, join, quote

GRACE_S = 5


@dataclass(frozen=True)
class Site:
    """What the user's target file adds to every job.

    `setup` is shell text (modules, activation), run with `set -e`; `env` is exported after it; `launch_prefix` stands
    before the command on every node (a container runtime, `numactl`).
    """

    setup: str = ""
    env: Mapping[str, str] = field(default_factory=dict)
    launch_prefix: tuple[str, ...] = ()


@dataclass(frozen=True)
class SrunOptions:
    """How the processes are started under Slurm: the step's name, extra options, and what binds GPUs to the step."""

    name: str
    extra: tuple[str, ...] = ()


def slurm_script(
    attempt: Attempt,
    command: Command,
    site: Site,
    srun: SrunOptions,
    header: list[str] | None = None,
    time_limit_s: float | None = None,
) -> str:
    """A script whose processes are started by `srun`, one agent a node or one process a device.

    `header` lines (`#SBATCH ...`) follow the first line; `time_limit_s` is for scripts whose time nobody else limits.
    """
    start = ["srun", "--kill-on-bad-exit=1", "--export=ALL", f"--job-name={srun.name}", f"--nodes={command.nodes}"]
    start += [f"--ntasks={command.nodes * command.tasks_per_node}", f"--ntasks-per-node={command.tasks_per_node}"]
    start += srun.extra
    agent = _SLURM_AGENT + _agent(attempt, command, site)
    body = f'{join(start)} bash -c "$ccl_agent" </dev/null &\nccl_groups+=("$!")\n'
    return _script(attempt, command, site, agent, body, header or [], time_limit_s)


def local_script(attempt: Attempt, command: Command, site: Site, time_limit_s: float) -> str:
    """A script that starts the processes itself, each in a process group of its own, on one machine."""
    agent = _LOCAL_AGENT + _agent(attempt, command, site)
    body = _LOCAL_BODY.replace("TASKS", str(command.tasks_per_node))
    return _script(attempt, command, site, agent, body, [], time_limit_s)


def _script(
    attempt: Attempt,
    command: Command,
    site: Site,
    agent: str,
    body: str,
    header: list[str],
    time_limit_s: float | None,
) -> str:
    parts = [
        "#!/bin/bash",
        *header,
        f"# trial {attempt.trial}, attempt {attempt.number} of a ccl-search run; {command.framework_version}".rstrip(
            "; "
        ),
        *_places(attempt, command),
        _PROLOGUE.replace("GRACE", str(GRACE_S)).replace("RESULT", RESULT_FILE),
        _watchdog(time_limit_s),
        _setup(site),
        here_document("ccl_agent", agent).rstrip("\n"),
        f"ccl_stage=run\n{body}{_EPILOGUE}",
    ]
    return "\n".join(part for part in parts if part) + "\n"


def _places(attempt: Attempt, command: Command) -> list[str]:
    values = {
        "CCL_JOB_DIR": attempt.job_dir,
        "CCL_ATTEMPT_DIR": attempt.attempt_dir,
        "CCL_TRACE_DIR": attempt.trace_dir,
        "CCL_ATTEMPT": attempt.mark,
        "CCL_NUM_NODES": str(command.nodes),
        "CCL_XPUS_PER_NODE": str(command.xpus_per_node),
        "CCL_WORLD_SIZE": str(command.world_size),
        "CCL_MASTER_PORT": str(attempt.port),
    }
    return [export(name, value) for name, value in values.items()]


def _setup(site: Site) -> str:
    lines = ["set -e", site.setup.strip("\n"), "set +e"] if site.setup.strip() else []
    return "\n".join([*lines, *(export(name, value) for name, value in site.env.items())])


def _agent(attempt: Attempt, command: Command, site: Site) -> str:
    lines = [export(name, value) for name, value in command.env.items()]
    lines.append(f"cd -- {quote(command.working_dir or attempt.job_dir)} || exit 1")
    lines.append("exec " + join([*site.launch_prefix, *command.argv]))
    return "\n".join(lines) + "\n"


def _watchdog(time_limit_s: float | None) -> str:
    if time_limit_s is None:
        return ""
    return (
        f'( sleep {time_limit_s:g}; : > "$CCL_ATTEMPT_DIR/time-limit"; kill -TERM "$ccl_self" ) '
        "</dev/null >/dev/null 2>&1 &\nccl_watchdog=$!\ndisown\n"
    )


_PROLOGUE = r"""ccl_self=$$ ccl_stage=setup ccl_reason= ccl_watchdog= ccl_groups=()
ccl_now() { local now=${EPOCHREALTIME:-$(date +%s)}; printf '%s' "${now/,/.}"; }
ccl_started=$(ccl_now)

# Whether a process group has a process that is no zombie: init may take seconds to reap those.
ccl_lives() {
    kill -0 -- "-$1" 2>/dev/null || return 1
    command -v ps >/dev/null || return 0
    ps -eo pgid=,stat= | grep -Eq "^ *$1 +[^Z ]"
}

# Ends what this script started and is still there; srun passes the signal on to every node.
ccl_end_children() {
    local round group left
    for group in "${ccl_groups[@]}"; do kill -TERM -- "-$group" 2>/dev/null; done
    for ((round = 0; round < GRACE * 10; round++)); do
        left=
        for group in "${ccl_groups[@]}"; do ccl_lives "$group" && left=1; done
        [ -n "$left" ] || return
        sleep 0.1
    done
    for group in "${ccl_groups[@]}"; do kill -KILL -- "-$group" 2>/dev/null; done
}

# The result file appears by renaming, last of all: where it is, nothing of the job runs any more.
ccl_finish() {
    local code=$?
    set +eu
    trap - EXIT
    trap '' TERM INT HUP
    [ -z "$ccl_watchdog" ] || kill -KILL -- "-$ccl_watchdog" 2>/dev/null
    ccl_end_children
    [ ! -e "$CCL_ATTEMPT_DIR/time-limit" ] || ccl_reason=time_limit
    local nodes=${SLURM_JOB_NODELIST:-} format
    format='{"exit_code": %d, "stage": "%s", "reason": "%s", "started": %s, "ended": %s, '
    format+='"restarts": %d, "nodes": "%s", "host": "%s"}\n'
    # shellcheck disable=SC2059
    printf "$format" \
        "$code" "$ccl_stage" "$ccl_reason" "$ccl_started" "$(ccl_now)" "${SLURM_RESTART_COUNT:-0}" \
        "${nodes//[\"\\]/}" "${HOSTNAME//[\"\\]/}" > "$CCL_ATTEMPT_DIR/RESULT.tmp" &&
        mv -f -- "$CCL_ATTEMPT_DIR/RESULT.tmp" "$CCL_ATTEMPT_DIR/RESULT"
    exit "$code"
}
trap ccl_finish EXIT
trap 'ccl_reason=signal; exit 143' TERM
trap 'ccl_reason=signal; exit 130' INT
trap 'ccl_reason=signal; exit 129' HUP
rm -rf -- "$CCL_TRACE_DIR" "$CCL_ATTEMPT_DIR/RESULT" "$CCL_ATTEMPT_DIR/time-limit"
mkdir -p -- "$CCL_TRACE_DIR" || exit 1
cd -- "$CCL_JOB_DIR" || exit 1
# Job control: every process started in the background leads a process group of its own.
set -m"""

_LOCAL_BODY = """for ((ccl_rank = 0; ccl_rank < TASKS; ccl_rank++)); do
    CCL_RANK=$ccl_rank bash -c "$ccl_agent" </dev/null &
    ccl_groups+=("$!")
done
"""

# The first process that fails ends the job: the others would wait for it for ever.
_EPILOGUE = """ccl_code=0
for ccl_group in "${ccl_groups[@]}"; do
    wait -n
    ccl_code=$?
    [ "$ccl_code" -eq 0 ] || break
done
exit "$ccl_code"
"""

_SLURM_AGENT = """export CCL_NODE_RANK=$SLURM_NODEID CCL_RANK=$SLURM_PROCID CCL_LOCAL_RANK=$SLURM_LOCALID
CCL_MASTER_ADDR=$(scontrol show hostnames "$SLURM_STEP_NODELIST" | head -n 1)
export CCL_MASTER_ADDR
exec >"$CCL_ATTEMPT_DIR/rank-$CCL_RANK.out" 2>&1
"""

_LOCAL_AGENT = """export CCL_NODE_RANK=0 CCL_LOCAL_RANK=$CCL_RANK CCL_MASTER_ADDR=127.0.0.1
exec >"$CCL_ATTEMPT_DIR/rank-$CCL_RANK.out" 2>&1
"""
