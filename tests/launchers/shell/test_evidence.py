"""Evidence: the first real error, by rank, whatever noise stands around it."""

from __future__ import annotations

from pathlib import Path

import pytest

from launchers.shell import evidence, logs
from launchers.shell.evidence import find, match, weigh
from runs.trial import FailureClass

OOM, NODE, LAUNCH = FailureClass.OOM, FailureClass.NODE_FAILURE, FailureClass.LAUNCH
FRAMEWORK, PREEMPTED, TIMEOUT = FailureClass.FRAMEWORK_ERROR, FailureClass.PREEMPTED, FailureClass.TIMEOUT

LINES: list[tuple[str, FailureClass | None]] = [
    ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.", OOM),
    ("torch.cuda.OutOfMemoryError: CUDA out of memory.", OOM),
    ("RuntimeError: CUDA error: out of memory", OOM),
    ("jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 9 bytes.", OOM),
    ("XLA:TPU compile permanent error. Ran out of memory in memory space hbm. Used 40G of 31G", OOM),
    ("ValueError: No available memory for the cache blocks. Try increasing gpu_memory_utilization", OOM),
    ("slurmstepd: error: Detected 1 oom-kill event(s) in StepId=15.batch. Some of your processes may", OOM),
    ("srun: error: node2: task 1: Out Of Memory", OOM),
    ("slurmstepd: error: Step 3.0 exceeded memory limit (604524544 > 209715200), being killed", OOM),
    ("srun: error: Node failure on node4", NODE),
    ("slurmstepd: error: *** JOB 4 ON node4 CANCELLED AT 2026-01-01T00:00:00 DUE TO NODE FAILURE, SEE LOG ***", NODE),
    ("slurmstepd: error: *** JOB 4 ON node4 CANCELLED AT 2026-01-01T00:00:00 DUE TO PREEMPTION ***", PREEMPTED),
    ("slurmstepd: error: *** JOB 4 ON node4 CANCELLED AT 2026-01-01T00:00:00 DUE TO TIME LIMIT ***", TIMEOUT),
    ("NVRM: Xid (PCI:0000:07:00): 79, pid=1, GPU has fallen off the bus.", NODE),
    ("OSError: [Errno 28] No space left on device: 'x'", NODE),
    ("bash: line 3: torchrun: command not found", LAUNCH),
    ("bash: line 7: exec: nosuch: not found", LAUNCH),
    ("RuntimeError: The TPU is already in use by process with pid 17.", LAUNCH),
    ("srun: error: Unable to create step for job 39: More processors requested than permitted", LAUNCH),
    ("train.py: error: unrecognized arguments: --training.batch_size 8", FRAMEWORK),
    ("ValueError: hidden size 4096 is not divisible by 3", FRAMEWORK),
    ("srun: error: node2: task 1: Exited with exit code 7", FRAMEWORK),
    ("bash: line 1: 17 Segmentation fault      (core dumped) ./a", FRAMEWORK),
    ("torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ", None),
    ("[Rank 3] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7, OpType=ALLREDUCE)", None),
    ("torch.distributed.DistBackendError: NCCL error in: ../NCCLUtils.hpp: remote process exited", None),
    ("torch.distributed.elastic.rendezvous.api.RendezvousConnectionError: The connection to the store failed", None),
    ("srun: Job step aborted: Waiting up to 5 seconds for job step to finish.", None),
    ("jax.errors.JaxRuntimeError: DEADLINE_EXCEEDED: Barrier timed out", None),
]


@pytest.mark.parametrize(("line", "failure"), LINES)
def test_what_a_line_means(line: str, failure: FailureClass | None) -> None:
    found = find([line])
    assert found is not None
    assert found.failure is failure


@pytest.mark.parametrize(
    "line", ["step: 10 loss: 7.1", "INFO out of memory is avoided by recompute", "UserWarning: RuntimeError: soon", ""]
)
def test_what_says_nothing(line: str) -> None:
    assert find([line]) is None


def test_every_signature_names_its_source_and_is_used_by_a_line_or_known_text() -> None:
    assert all(signature.source for signature in evidence.signatures())
    assert len({signature.id for signature in evidence.signatures()}) == len(evidence.signatures())
    assert match("hello") is None


ROOT_CAUSE = """\
[rank1]:[W1130 10:00:00 ProcessGroupNCCL.cpp:1] Warning: something
[rank1]: Traceback (most recent call last):
[rank1]:   File "/opt/train.py", line 300, in step
[rank1]:     loss.backward()
[rank1]: ZeroDivisionError: division by zero

[rank1]: During handling of the above exception, another exception occurred:

[rank1]: Traceback (most recent call last):
[rank1]:   File "/opt/train.py", line 310, in close
[rank1]: RuntimeError: cannot close
E1130 torch/distributed/elastic/multiprocessing/api.py:869] failed (exitcode: 1) local_rank: 1
Traceback (most recent call last):
  File "torchrun", line 8, in main
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
"""


def test_the_first_exception_is_the_cause_and_its_traceback_is_kept() -> None:
    found = find(ROOT_CAUSE.splitlines())
    assert found is not None
    assert (found.line, found.rank) == ("ZeroDivisionError: division by zero", 1)
    assert found.excerpt[1] == '  File "/opt/train.py", line 300, in step'


def test_a_memory_error_beats_an_earlier_exception() -> None:
    text = "KeyError: 'x'\nsome line\nCUDA out of memory. Tried to allocate 1 GiB\n"
    found = find(text.splitlines())
    assert found is not None
    assert found.failure is OOM


def test_consequences_count_only_where_there_is_nothing_else() -> None:
    others = find(["torch.distributed.DistBackendError: NCCL error: remote process exited"], rank=0)
    cause = find(["ValueError: bad shape"], rank=3)
    assert others is not None
    assert cause is not None
    both = weigh([others, cause])
    assert (both.failure, both.text) == (FRAMEWORK, "rank 3: ValueError: bad shape")
    assert weigh([others]).failure is None
    assert weigh([others]).text.startswith("rank 0: torch.distributed")


def test_equal_errors_of_many_ranks_are_one_line() -> None:
    found = [find([f"ValueError: rank {rank} is wrong"], rank=rank) for rank in (0, 1, 2, 5)]
    text = weigh(finding for finding in found if finding is not None).text
    assert text == "ranks 0-2,5: ValueError: rank 0 is wrong"


def test_many_different_errors_are_cut() -> None:
    names = "abcdefghij"
    found = [find([f"{name.upper()}Error: x"], rank=rank) for rank, name in enumerate(names)]
    assert weigh(finding for finding in found if finding is not None).text.splitlines()[-1] == "and 4 other errors"


def test_colours_and_labels_are_taken_off() -> None:
    assert evidence.undress("\x1b[31m[rank12]: ValueError: x\x1b[0m\n") == ("ValueError: x", 12)
    assert evidence.undress("3: ValueError: x") == ("ValueError: x", 3)


def test_logs_of_an_attempt(tmp_path: Path) -> None:
    (tmp_path / "rank-0.out").write_text("fine\nConnection reset by peer\n")
    (tmp_path / "rank-10.out").write_text("torch.OutOfMemoryError: CUDA out of memory\n")
    (tmp_path / "job.err").write_text("srun: error: n: task 10: Exited with exit code 1\n")
    read = logs.read_evidence(tmp_path, per_node=False)
    assert read.failure is OOM
    assert read.text.splitlines()[0] == "rank 10: torch.OutOfMemoryError: CUDA out of memory"
    assert logs.read_evidence(tmp_path).text.startswith("node 10: torch")


def test_where_no_error_is_found_the_last_line_is_told(tmp_path: Path) -> None:
    (tmp_path / "rank-0.out").write_text("starting\nit just stopped\n\n")
    read = logs.read_evidence(tmp_path)
    assert (read.failure, read.text) == (None, "no error found; rank-0.out ends with: it just stopped")
    assert logs.read_evidence(tmp_path / "none").text == ""


def test_a_huge_log_is_read_at_both_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "_PART", 1000)
    path = tmp_path / "rank-0.out"
    path.write_text("first\n" + "middle of the log\n" * 1000 + "CUDA out of memory. Tried to allocate 1 GiB\n")
    read = list(logs.lines(path))
    assert read[0] == "first"
    assert len("\n".join(read)) <= 2000
    assert logs.read_evidence(tmp_path).failure is OOM


def test_bytes_that_are_no_text_do_no_harm(tmp_path: Path) -> None:
    (tmp_path / "rank-0.out").write_bytes(b"\xff\xfe\x00\nValueError: x\n")
    assert logs.read_evidence(tmp_path).failure is FRAMEWORK
