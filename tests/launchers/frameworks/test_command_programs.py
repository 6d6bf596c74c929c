"""The programs that trials bring along: run for real, against stand-ins for the frameworks they call."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from launchers.frameworks.commands.sglang import driver
from runs.errors import BadInputError
from tests.launchers.frameworks.commands import command, run_locally, training

TITAN_CONFIG = """
from dataclasses import dataclass, field

@dataclass(kw_only=True, slots=True)
class Training:
    {training}
    steps: int = 10000
    enable_cpu_offload: bool = False
    {graphs}
    mixed_precision_param: str = "bfloat16"

@dataclass(kw_only=True, slots=True)
class Parallelism:
    data_parallel_replicate_degree: int = 1
    data_parallel_shard_degree: int = -1
    fsdp_reshard_after_forward: str = "default"
    tensor_parallel_degree: int = 8
    pipeline_parallel_degree: int = 1
    pipeline_parallel_schedule: str = "1F1B"
    {pipeline}
    context_parallel_degree: int = 1
    expert_parallel_degree: int = 1

@dataclass(kw_only=True, slots=True)
class Profiler:
    enable_profiling: bool = False
    save_traces_folder: str = "profiling/traces"
    profile_freq: int = 10
    profiler_active: int = 1
    profiler_warmup: int = 3

@dataclass(kw_only=True, slots=True)
class Part:
    enable: bool = True
    log_freq: int = 10
    disable_color_printing: bool = False
    enable_structured_logging: bool = True

@dataclass(kw_only=True, slots=True)
class Loader:
    dataset: object = "c4"
    {loader}

@dataclass(kw_only=True, slots=True)
class Config:
    hf_assets_path: str = "./tests/assets/tokenizer"
    dump_folder: str = "./outputs"
    profiler: Profiler = field(default_factory=Profiler)
    metrics: Part = field(default_factory=Part)
    dataloader: Loader = field(default_factory=Loader)
    training: Training = field(default_factory=Training)
    parallelism: Parallelism = field(default_factory=Parallelism)
    activation_checkpoint: object = "as the recipe says"
    compile: Part = field(default_factory=Part)
    debug: Part = field(default_factory=Part)

def llama3_8b():
    return Config()
"""
TITAN_TRAIN = """
import importlib, json, os, sys
from dataclasses import asdict
words = dict(zip(sys.argv[1::2], sys.argv[2::2]))
config = getattr(importlib.import_module(words["--module"]), words["--config"])()
kind = type(config.activation_checkpoint)
config.activation_checkpoint = None if config.activation_checkpoint is None else kind.__qualname__
with open("config.json", "w") as stream:
    json.dump(asdict(config), stream)
"""
CHECKPOINTING = """
class SelectiveAC:
    class Config: pass
class FullAC:
    class Config: pass
"""
TORCHRUN = '#!/bin/bash\nwhile [[ $1 == --* ]]; do shift; done\nexec python3 "$@"\n'
GRAIN_DATA = """
from dataclasses import dataclass, field

@dataclass(kw_only=True, slots=True)
class Source:
    path: str
    load_dataset_kwargs: dict = field(default_factory=dict)

@dataclass(frozen=True, kw_only=True, slots=True)
class Single:
    source: Source

DATASETS = {"c4_test": Single(source=Source(path="json", load_dataset_kwargs={"data_files": "data.json"}))}
"""
PACKING = """
from dataclasses import dataclass

@dataclass(kw_only=True, slots=True)
class ConcatThenSplitPackingConfig:
    dataset: object
"""
_SEQUENCES = {
    "training": "local_batch_size: int = 8\n    global_batch_size: int = -1\n    seq_len: int = 2048",
    "pipeline": "pipeline_parallel_microbatch_size: int = 1",
    "loader": "dataset_path: str | None = None",
}
_GRAPHS = {"graphs": "disable_cuda_graphs: bool = False"}
JUNE = {**_SEQUENCES, "graphs": ""}
SEQUENCES = {**_SEQUENCES, **_GRAPHS}
TOKENS = {
    "training": "num_tokens_per_microbatch_per_dp_rank: int = 1\n    num_tokens_per_train_step: int = 1\n"
    "    max_context_length: int = 2048",
    "pipeline": "num_pp_microbatches: int = 0",
    "loader": "",
    **_GRAPHS,
}


def titan(tmp_path: Path, fields: dict[str, str]) -> Path:
    """A checkout of TorchTitan whose config classes have exactly these fields, and a torchrun."""
    classes = TITAN_CONFIG
    for name, lines in fields.items():
        classes = classes.replace(f"{{{name}}}", lines)
    files = {
        "torchtitan/models/llama3/config_registry.py": classes,
        "torchtitan/hf_datasets/text_datasets.py": GRAIN_DATA,
        "torchtitan/components/data/__init__.py": PACKING,
        "torchtitan/distributed/activation_checkpoint.py": CHECKPOINTING,
        "torchtitan/train.py": TITAN_TRAIN,
        "torchrun": TORCHRUN,
    }
    for name, text in files.items():
        path = tmp_path / "checkout" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (tmp_path / "checkout" / "torchrun").chmod(0o755)
    return tmp_path / "checkout"


def titan_config(
    tmp_path: Path, version: str, fields: dict[str, str], config: dict[str, Any], **more: Any
) -> dict[str, Any]:
    """The config that the program of a trial ends with."""
    checkout = titan(tmp_path, fields)
    settings = {"path": str(checkout), "torchrun": [str(checkout / "torchrun")], "tokenizer": "/data/\"tok'", **more}
    made = command("torchtitan", config, version, training(batch_size=16), dataset="c4_test", **settings)
    run_locally(made, tmp_path / "job")
    found: dict[str, Any] = json.loads((checkout / "config.json").read_text())
    return found


PIPELINED = {
    "pp": 2, "dp": 2, "dp_shard": 2, "zero_stage": 3, "micro_batch_size": 2, "pipeline_schedule": "interleaved",
    "activation_checkpointing": "full", "compile": False, "offload": True,
}  # fmt: skip


def test_torchtitans_generated_config_sets_what_the_trial_says(tmp_path: Path) -> None:
    found = titan_config(tmp_path, "0.3.0", SEQUENCES, PIPELINED)

    assert found["training"] == {
        "local_batch_size": 8, "global_batch_size": 16, "seq_len": 512, "steps": 10, "enable_cpu_offload": True,
        "disable_cuda_graphs": True, "mixed_precision_param": "bfloat16",
    }  # fmt: skip
    assert found["parallelism"] == {
        "data_parallel_replicate_degree": 1, "data_parallel_shard_degree": 2, "fsdp_reshard_after_forward": "always",
        "tensor_parallel_degree": 1, "pipeline_parallel_degree": 2, "pipeline_parallel_schedule": "Interleaved1F1B",
        "pipeline_parallel_microbatch_size": 2, "context_parallel_degree": 1, "expert_parallel_degree": 1,
    }  # fmt: skip
    assert found["profiler"] == {
        "enable_profiling": True, "save_traces_folder": "profile_traces", "profile_freq": 10, "profiler_active": 5,
        "profiler_warmup": 3,
    }  # fmt: skip
    assert found["activation_checkpoint"] == "FullAC.Config" and found["compile"]["enable"] is False
    assert found["dump_folder"] == str(tmp_path / "job" / "trace")
    assert found["hf_assets_path"] == "/data/\"tok'" and found["dataloader"]["dataset"] == "c4_test"
    assert found["debug"]["enable_structured_logging"] is False and found["metrics"]["log_freq"] == 1


def test_torchtitan_counts_tokens_from_august_2026(tmp_path: Path) -> None:
    found = titan_config(tmp_path, "2026-08-25", TOKENS, {**PIPELINED, "activation_checkpointing": "none"})

    told = found["training"]
    assert told["num_tokens_per_microbatch_per_dp_rank"] == 2 * 512
    assert (told["num_tokens_per_train_step"], told["max_context_length"]) == (16 * 512, 512)
    assert found["parallelism"]["num_pp_microbatches"] == 4 and found["activation_checkpoint"] is None
    source = {"path": "json", "load_dataset_kwargs": {"data_files": "data.json"}}
    assert found["dataloader"]["dataset"] == {"dataset": {"source": source}}


def test_torchtitans_data_sets_of_grain_take_the_users_path(tmp_path: Path) -> None:
    found = titan_config(tmp_path, "2026-08-25", TOKENS, PIPELINED, dataset_path="/data/my 'c4'")

    source = {"path": "/data/my 'c4'", "load_dataset_kwargs": {}}
    assert found["dataloader"]["dataset"] == {"dataset": {"source": source}}


def test_torchtitan_of_june_2026_has_no_word_for_cuda_graphs(tmp_path: Path) -> None:
    found = titan_config(tmp_path, "2026-07-01", JUNE, PIPELINED, dataset_path="/data/c4")

    assert "disable_cuda_graphs" not in found["training"] and found["training"]["local_batch_size"] == 8
    assert found["dataloader"] == {"dataset": "c4_test", "dataset_path": "/data/c4"}


def test_a_field_that_a_release_does_not_have_ends_the_job(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="AttributeError"):
        titan_config(tmp_path, "2026-08-25", SEQUENCES, PIPELINED)


@pytest.mark.parametrize(("key", "value"), [("model", "os; import x"), ("flavor", "llama3_8b as y"), ("flavor", "a.b")])
def test_names_in_generated_programs_are_names(key: str, value: str) -> None:
    names = {"model": "torchtitan.models.llama3.config_registry", "flavor": "llama3_8b", key: value}
    with pytest.raises(BadInputError, match="no Python name"):
        command("torchtitan", PIPELINED, "0.3.0", training(batch_size=16), **names)


SGLANG_ENGINE = """
import json, os, time
class Engine:
    def __init__(self, server_args):
        self.args, self.profiling, self.calls = server_args, False, []
        with open(f"engine-{os.environ['CCL_NODE_RANK']}.json", "w") as stream:
            json.dump(vars(server_args), stream)
        if server_args.node_rank > 0:
            time.sleep(600)
    def generate(self, input_ids, sampling_params):
        assert sampling_params["ignore_eos"] and {len(each) for each in input_ids} == {self.args.input_len}
        self.calls.append((len(input_ids), sampling_params["max_new_tokens"], self.profiling))
    def start_profile(self):
        self.profiling = True
    def stop_profile(self):
        folder = os.environ["SGLANG_TORCH_PROFILER_DIR"]
        for rank in range(self.args.trace_files):
            with open(os.path.join(folder, f"1-TP-{rank}.trace.json.gz"), "w") as stream:
                stream.write("{}")
    def shutdown(self):
        with open("calls.json", "w") as stream:
            json.dump(self.calls, stream)
"""
SGLANG_ARGS = """
class ServerArgs:
    @staticmethod
    def add_cli_args(parser):
        for name in ("model-path", "load-format", "dtype", "dist-init-addr"):
            parser.add_argument("--" + name)
        for name in ("tp-size", "pp-size", "dp-size", "nnodes", "max-running-requests", "random-seed"):
            parser.add_argument("--" + name, type=int, default=1)
        parser.add_argument("--node-rank", type=int, default=0)
        for name in ("skip-tokenizer-init", "disable-radix-cache"):
            parser.add_argument("--" + name, action="store_true")
    @staticmethod
    def from_cli_args(args):
        return args
"""


def sglang(folder: Path) -> Path:
    """A stand-in for the package, importable from the folder returned."""
    files = {
        "entrypoints/engine.py": SGLANG_ENGINE,
        "server_args.py": SGLANG_ARGS,
        "utils.py": "def kill_process_tree(pid, include_parent): pass\n",
    }
    for name, text in files.items():
        path = folder / "site" / "sglang" / "srt" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder / "site"


def test_sglangs_driver_warms_up_and_profiles_one_batch(tmp_path: Path) -> None:
    made = command(
        "sglang", {"tp": 2, "dp": 1, "max_num_seqs": 16}, "0.5.10", "wl1", python=sys.executable, path=str(tmp_path)
    )

    logs = run_locally(made, tmp_path / "job", PYTHONPATH=str(sglang(tmp_path)))

    assert json.loads((tmp_path / "calls.json").read_text()) == [[128, 129, False]] * 3 + [[128, 129, True]]
    assert logs.count("warm-up batch") == 3 and logs.count("profiled batch") == 1
    found = [path for pattern in made.trace_globs for path in (tmp_path / "job" / "trace").glob(pattern)]
    assert len(found) == made.trace_count == 2


def test_two_replicas_of_two_nodes_each_find_their_own_first_node(tmp_path: Path) -> None:
    """Four processes stand for four nodes; the first of each pair leads, and ends the other when it has finished."""
    made = command("sglang", {"tp": 8, "dp": 2, "max_num_seqs": 16}, "0.5.10", "wl1")
    (tmp_path / "trace").mkdir()
    program = tmp_path / "ccl_sglang.py"
    program.write_text(driver())
    children = [_node(tmp_path, program, made.argv, node) for node in range(4)]

    assert [child.wait(timeout=60) for child in children] == [0, 0, 0, 0]
    engines = [json.loads((tmp_path / f"engine-{node}.json").read_text()) for node in range(4)]
    assert [engine["node_rank"] for engine in engines] == [0, 1, 0, 1]
    assert {engine["nnodes"] for engine in engines} == {2} and {engine["batch_size"] for engine in engines} == {64}
    assert all(engine["dist_init_addr"].endswith(":23456") for engine in engines)
    assert [(tmp_path / "trace" / f"finished-{replica}").exists() for replica in (0, 1)] == [True, True]


def _node(folder: Path, program: Path, argv: tuple[str, ...], node: int) -> subprocess.Popen[bytes]:
    values = {
        "@CCL_NODE_RANK@": str(node), "@CCL_TRACE_DIR@": str(folder / "trace"), "@CCL_JOB_DIR@": str(folder),
    }  # fmt: skip
    words = [sys.executable, str(program)]
    for word in argv[2:]:
        for slot, value in values.items():
            word = word.replace(slot, value)
        words.append(word)
    variables = {
        "PYTHONPATH": str(sglang(folder)), "CCL_NODE_RANK": str(node), "CCL_MASTER_PORT": "23456",
        "SGLANG_TORCH_PROFILER_DIR": str(folder / "trace" / f"node-{node}"),
    }  # fmt: skip
    return subprocess.Popen(words, cwd=folder, env=variables)
