"""Shell texts that run on a worker, read from stdin: start a job detached, ask for it, end it, pack what it left."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePosixPath

from launchers.shell.command import Command
from launchers.shell.layout import RESULT_FILE, SCRIPT_FILE
from launchers.shell.quoting import export, here_document, join, quote
from launchers.shell.script import Site
from runs.errors import BadInputError

MARK = "CCL "
GRACE_S = 5
_STARTING_S = 30


@dataclass(frozen=True)
class WorkerJob:
    """One worker's part of an attempt. `root` is the folder of all jobs on the worker (relative: below the home).

    `trial` is the trial's folder in it, `folder` the attempt's in that; `trace_dir` a `gs://` path, or empty for the
    worker's own disk. `master` is the first worker's inside address, `limit_s` when the worker itself ends the job.
    """

    root: str
    trial: str
    folder: str
    name: str
    worker: int
    command: Command
    site: Site
    master: str
    port: int
    limit_s: float
    trace_dir: str = ""
    teardown: str = ""

    @property
    def place(self) -> str:
        """The worker's own folder for the trial: also on a shared home no two workers share one."""
        return str(PurePosixPath(self.root.removeprefix("~/")) / self.trial / f"worker-{self.worker}")


def start_text(job: WorkerJob) -> str:
    """Starts the job unless it was started before. Answers `started`, or `busy NAME` while another job has the TPU."""
    files = {f"{job.folder}/{SCRIPT_FILE}": script_text(job), f"{job.folder}/end.sh": END_SCRIPT}
    files |= {_inside(path): content for path, content in job.command.files.items()}
    writing = [
        f"{here_document('ccl_text', content)}mkdir -p -- {quote(str(PurePosixPath(path).parent))} && "
        f"printf '%s' \"$ccl_text\" > {quote(path)} || exit 1"
        for path, content in files.items()
    ]
    root = quote(job.root.removeprefix("~/"))
    return "\n".join(
        [
            _ALIVE,
            f"cd || exit 1; umask 077; mkdir -p -- {root} {quote(job.place)}/{job.folder} || exit 1",
            f"ccl_lock=$(cd -- {root} && pwd -P)/tpu.lock; cd -- {quote(job.place)} || exit 1; ccl_trial=$(pwd -P)",
            f"ccl_mine=$ccl_trial/{job.folder} ccl_name={quote(job.name)}",
            _LOCK,
            f"if mkdir -- {job.folder}/started 2>/dev/null; then",
            *writing,
            _STALE_LOCKFILE,
            f'CCL_ATTEMPT="$ccl_name" setsid nohup bash "$ccl_mine/{SCRIPT_FILE}" '
            f'</dev/null >"$ccl_mine/job.out" 2>"$ccl_mine/job.err" &',
            "fi",
            f'echo "{MARK}started"',
        ]
    )


def poll_text(job: WorkerJob) -> str:
    """Answers `running`, `starting`, `gone` (it ended without a result), `absent`, or `result` with its JSON."""
    return (
        f"{_ALIVE}\ncd || exit 1; cd -- {quote(job.place)}/{job.folder} 2>/dev/null || "
        f'{{ echo "{MARK}absent"; exit 0; }}\n'
        + _POLL.replace("RESULT", RESULT_FILE).replace("MARK", MARK).replace("SECONDS_TO_START", str(_STARTING_S))
    )


def end_text(job: WorkerJob) -> str:
    """Ends every process of the attempt and frees the TPU for others. Answers `ended`, or `left` with their pids."""
    return (
        f"cd || exit 1; cd -- {quote(job.place)} 2>/dev/null || {{ echo '{MARK}ended'; exit 0; }}\n"
        f"ccl_script=$(mktemp) && {here_document('ccl_text', END_SCRIPT)}"
        'printf %s "$ccl_text" > "$ccl_script"\n'
        f'ccl_left=$(bash "$ccl_script" {quote(job.name)} 0 {GRACE_S + 2}); rm -f -- "$ccl_script"\n'
        f"{_teardown(job)}"
        'if [ -n "$ccl_left" ]; then echo "MARKleft" $ccl_left; exit 0; fi\n'
        "ccl_lock=$(cd ../../.. && pwd -P)/tpu.lock\n"
        f'[ "$(readlink -- "$ccl_lock")" != "$(pwd -P)/{job.folder}" ] || rm -f -- "$ccl_lock"\n'
        'echo "MARKended"\n'
    ).replace("MARK", MARK)


def pack_text(job: WorkerJob, with_traces: bool) -> str:
    """Writes a tar of the attempt's folder, and of the traces, to stdout; nothing where there is none."""
    traces = "[ ! -d trace ] || ccl_what+=(trace)\n" if with_traces and not job.trace_dir else ""
    return (
        f"cd || exit 1; cd -- {quote(job.place)} 2>/dev/null || exit 0\n"
        f"ccl_what=(); [ ! -d {job.folder} ] || ccl_what+=({job.folder})\n{traces}"
        '[ "${#ccl_what[@]}" -eq 0 ] || exec tar -czf - "${ccl_what[@]}"\n'
    )


def remove_text(job: WorkerJob) -> str:
    """Removes the trial's files from a worker that will serve other jobs."""
    above = quote(str(PurePosixPath(job.place).parent))
    return f"cd || exit 1; rm -rf -- {quote(job.place)}; rmdir -p -- {above} 2>/dev/null\necho '{MARK}removed'\n"


def script_text(job: WorkerJob) -> str:
    """The script of one worker, as it is recorded: places, site set-up, and the command under a time limit."""
    command = job.command
    values = {
        "CCL_ATTEMPT": job.name,
        "CCL_NODE_RANK": str(job.worker),
        "CCL_NUM_NODES": str(command.nodes),
        "CCL_XPUS_PER_NODE": str(command.xpus_per_node),
        "CCL_WORLD_SIZE": str(command.world_size),
        "CCL_MASTER_ADDR": job.master,
        "CCL_MASTER_PORT": str(job.port),
    }
    about = f"# {job.name}, worker {job.worker} of {command.nodes}; {command.framework_version}".rstrip("; ")
    parts = [
        "#!/bin/bash",
        about,
        f'cd -- "$(dirname -- "$0")/.." || exit 1\nexport CCL_JOB_DIR=$PWD CCL_ATTEMPT_DIR=$PWD/{job.folder}',
        f"export CCL_TRACE_DIR={quote(job.trace_dir)}" if job.trace_dir else "export CCL_TRACE_DIR=$PWD/trace",
        *(export(name, value) for name, value in values.items()),
        _PROLOGUE.replace("GRACE", str(GRACE_S)).replace("RESULT", RESULT_FILE).replace("TEARDOWN", _teardown(job)),
        f'( sleep {job.limit_s:g}; : > "$CCL_ATTEMPT_DIR/time-limit"; kill -TERM "$ccl_self" ) '
        "</dev/null >/dev/null 2>&1 &",
        *(["set -e", job.site.setup.strip("\n"), "set +e"] if job.site.setup.strip() else []),
        *(export(name, value) for name, value in job.site.env.items()),
        here_document("ccl_agent", _agent(job)).rstrip("\n"),
        _BODY.replace("TASKS", str(command.tasks_per_node)).rstrip("\n"),
    ]
    return "\n".join(parts) + "\n"


def _agent(job: WorkerJob) -> str:
    lines = [export(name, value) for name, value in job.command.env.items()]
    lines.append(f"cd -- {quote(job.command.working_dir)} || exit 1" if job.command.working_dir else "")
    lines.append("exec " + join([*job.site.launch_prefix, *job.command.argv]))
    return "\n".join(line for line in lines if line) + "\n"


def _teardown(job: WorkerJob) -> str:
    return f"( {job.teardown.strip()}\n) </dev/null >/dev/null 2>&1\n" if job.teardown.strip() else ""


def _inside(path: str) -> str:
    """A path of `Command.files`, which must stay in the trial's folder.

    Raises:
        BadInputError: it does not.
    """
    parts = PurePosixPath(path).parts
    if not parts or PurePosixPath(path).is_absolute() or ".." in parts:
        raise BadInputError(f"file {path!r} lies outside the trial's folder", "mend the framework adapter")
    return path


# Prints the pids of an attempt that are left after all was done to end them; the mark is in their environment.
END_SCRIPT = r"""name=$1 keep=$2 grace=$3
unset CCL_ATTEMPT
marked() {
    grep -lzxF -e "CCL_ATTEMPT=$name" /proc/[0-9]*/environ 2>/dev/null | cut -d/ -f3 | grep -vx -e "$keep"
}
pids=$(marked)
[ -n "$pids" ] || exit 0
kill -TERM $pids 2>/dev/null
for ((round = 0; round < grace * 10; round++)); do
    [ -n "$(marked)" ] || exit 0
    sleep 0.1
done
for ((round = 0; round < 30; round++)); do
    pids=$(marked)
    [ -n "$pids" ] || exit 0
    kill -KILL $pids 2>/dev/null
    sleep 0.1
done
echo $pids
"""

_ALIVE = r"""ccl_alive() {
    local stat
    stat=$(cat "/proc/$1/stat" 2>/dev/null) || return 1
    set -- "$1" "$2" ${stat##*) }
    [ "$3" != Z ] && [ "$3" != X ] && [ "${22}" = "$2" ]
}"""

# One job at a time has the TPU. An earlier attempt at the same trial is ended; another trial is waited for.
_LOCK = r"""while ! ln -sT -- "$ccl_mine" "$ccl_lock" 2>/dev/null; do
    ccl_holder=$(readlink -- "$ccl_lock") || exit 1
    [ "$ccl_holder" != "$ccl_mine" ] || break
    ccl_pid= ccl_start=
    [ -e "$ccl_holder/result.json" ] || read -r ccl_pid ccl_start 2>/dev/null <"$ccl_holder/pid"
    if [ -n "$ccl_pid" ] && ccl_alive "$ccl_pid" "$ccl_start"; then
        if [ "${ccl_holder%/*}" != "$ccl_trial" ]; then echo "CCL busy $ccl_holder"; exit 0; fi
        ccl_old=$(tr '\0' '\n' <"/proc/$ccl_pid/environ" | sed -n 's/^CCL_ATTEMPT=//p')
        bash "$ccl_holder/end.sh" "$ccl_old" 0 5
    elif [ -z "$ccl_pid" ] && [ ! -e "$ccl_holder/result.json" ] &&
        [ -n "$(find "$ccl_lock" -maxdepth 0 -newermt '-30 seconds' 2>/dev/null)" ]; then
        echo "CCL busy $ccl_holder"; exit 0
    fi
    rm -f -- "$ccl_lock"
done"""

# A lock file of libtpu that nobody holds is what a killed run leaves behind; the next start would refuse because of it.
_STALE_LOCKFILE = r"""if [ -e /tmp/libtpu_lockfile ] && ! ls -l /proc/[0-9]*/fd 2>/dev/null |
    grep -qE ' (/dev/accel[0-9]+|/dev/vfio/[0-9]+|/tmp/libtpu_lockfile)$'; then rm -f /tmp/libtpu_lockfile; fi"""

_POLL = r"""ccl_look() { [ ! -e RESULT ] || { printf 'MARKresult %s\n' "$(cat RESULT)"; exit 0; }; }
ccl_look
if read -r ccl_pid ccl_start 2>/dev/null <pid; then
    if ccl_alive "$ccl_pid" "$ccl_start"; then echo "MARKrunning"; exit 0; fi
    ccl_look
    echo "MARKgone"
elif [ -n "$(find started -maxdepth 0 -newermt '-SECONDS_TO_START seconds' 2>/dev/null)" ]; then
    echo "MARKstarting"
elif [ -e started ]; then
    echo "MARKgone"
else
    echo "MARKabsent"
fi
"""

_PROLOGUE = r"""ccl_self=$$ ccl_stage=setup ccl_reason=
ccl_started=$(date +%s.%N)
ccl_stat=$(cat "/proc/$$/stat")
set -- ${ccl_stat##*) }
printf '%s %s\n' "$$" "${20}" > "$CCL_ATTEMPT_DIR/pid.tmp" && mv -f -- "$CCL_ATTEMPT_DIR/pid.tmp" "$CCL_ATTEMPT_DIR/pid"

# The result file appears by renaming, last of all: where it is, nothing of the job runs any more.
ccl_finish() {
    local code=$?
    trap - EXIT
    trap '' TERM INT HUP
    env -u CCL_ATTEMPT bash "$CCL_ATTEMPT_DIR/end.sh" "$CCL_ATTEMPT" "$$" GRACE
    TEARDOWN
    [ ! -e "$CCL_ATTEMPT_DIR/time-limit" ] || ccl_reason=time_limit
    local form='{"exit_code": %d, "stage": "%s", "reason": "%s", "started": %s, "ended": %s, "restarts": 0, '
    form+='"nodes": "%s", "host": "%s"}\n'
    printf "$form" "$code" "$ccl_stage" "$ccl_reason" "$ccl_started" "$(date +%s.%N)" "$CCL_NODE_RANK" \
        "${HOSTNAME//[\"\\]/}" > "$CCL_ATTEMPT_DIR/RESULT.tmp" &&
        mv -f -- "$CCL_ATTEMPT_DIR/RESULT.tmp" "$CCL_ATTEMPT_DIR/RESULT"
    exit "$code"
}
trap ccl_finish EXIT
trap 'ccl_reason=signal; exit 143' TERM
trap 'ccl_reason=signal; exit 130' INT
trap 'ccl_reason=signal; exit 129' HUP
case $CCL_TRACE_DIR in gs://*) ;; *) rm -rf -- "$CCL_TRACE_DIR"; mkdir -p -- "$CCL_TRACE_DIR" || exit 1 ;; esac"""

# The first process that fails ends the worker's part: the others would wait for it for ever.
_BODY = r"""ccl_stage=run ccl_children=()
for ((ccl_local = 0; ccl_local < TASKS; ccl_local++)); do
    ccl_rank=$((CCL_NODE_RANK * TASKS + ccl_local))
    CCL_RANK=$ccl_rank CCL_LOCAL_RANK=$ccl_local bash -c "$ccl_agent" \
        </dev/null >"$CCL_ATTEMPT_DIR/rank-$ccl_rank.out" 2>&1 &
    ccl_children+=("$!")
done
ccl_code=0
for ccl_child in "${ccl_children[@]}"; do
    wait -n "${ccl_children[@]}"
    ccl_code=$?
    [ "$ccl_code" -eq 0 ] || break
done
exit "$ccl_code"
"""
