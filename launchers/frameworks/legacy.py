"""Recorded spellings of knobs, translated when old data is imported."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_RENAMED = {"micro_batch": "micro_batch_size"}
_COMPILE_MODES = {"eager": False, "inductor": True, "max-autotune": True}
_INTEGERS = ("tp", "pp", "dp", "dp_shard", "ep", "cp", "micro_batch_size", "zero_stage")
_CHECKPOINTING = {"megatron-lm": "selective"}


def translate_legacy(config: Mapping[str, Any], framework: str = "") -> tuple[dict[str, Any], list[str]]:
    """The config in today's words, and one note for everything that was changed.

    `micro_batch` is `micro_batch_size`; a recorded boolean (or its text) for `activation_checkpointing` is what the
    framework's script made of it: `selective` under Megatron-LM (--recompute-activations), elsewhere `full`, and
    `none` when false; `compile_mode` is `compile`; degrees recorded as text are numbers. A config that needs no
    translation comes back equal, without notes.
    """
    result: dict[str, Any] = {}
    notes: list[str] = []
    for key, value in config.items():
        new_key, new_value = _translated(key, value, framework)
        result[new_key] = new_value
        if new_key != key or type(new_value) is not type(value) or new_value != value:
            notes.append(f"{key}={value!r} read as {new_key}={new_value!r}")
    return result, notes


def _translated(key: str, value: Any, framework: str) -> tuple[str, Any]:
    key = _RENAMED.get(key, key)
    if key == "compile_mode":
        return "compile", _COMPILE_MODES.get(str(value), bool(value))
    if key == "activation_checkpointing":
        return key, _checkpointing(value, framework)
    if key in _INTEGERS and isinstance(value, str) and value.strip().isdecimal():
        return key, int(value)
    return key, value


def _checkpointing(value: Any, framework: str) -> Any:
    text = str(value).lower()
    if text not in ("true", "false"):
        return value
    return _CHECKPOINTING.get(framework, "full") if text == "true" else "none"
