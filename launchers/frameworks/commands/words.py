"""From a value to the words that tell a framework about it, by the tables of an era.

How a value is spelled is one of

- `flag: --name`: two words, the name and the value; `flag: name=` (or `name = `, in a program): one; with `values`,
  only the values listed there, each written as the table says;
- `words: {value: [word, ...]}`: the words of each value, all of them literal (`[]`: nothing to say);
- `env: NAME`: a variable of that name, with `values` as for a flag (see `knob_env`);
- `via: [fact, ...]`: nothing of its own, the facts named carry it; `untold: true`: the era has no word for a fact.

A value that the table does not know is refused: nothing of a config reaches a command line unchecked.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from launchers.frameworks.commands.eras import Era
from runs.errors import BadInputError

Spelling = Mapping[str, Any]
_SILENT = ("via", "untold", "env")
_AUTO = "auto"


def key_of(value: Any) -> str:
    """A value as tables spell it: `true` and `false`, numbers and texts as they are."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def knob_words(era: Era, config: Mapping[str, Any]) -> list[str]:
    """The words of every knob of `config`, in the order of the era's table; `auto` leaves a knob to the framework.

    Raises:
        BadInputError: the framework has no word for a knob or for its value.
    """
    unknown = [key for key in config if key not in era.knobs]
    if unknown:
        raise BadInputError(
            f"{era.framework} ({era.name}) has no argument for the knob {unknown[0]!r}",
            f"knobs it can be told: {', '.join(era.knobs)}; remove the knob from the space",
        )
    found: list[str] = []
    for key, spelling in era.knobs.items():
        if key in config and config[key] != _AUTO:
            found += spelled(era, key, spelling, config[key])
    return found


def knob_env(era: Era, config: Mapping[str, Any]) -> dict[str, str]:
    """The variables of the knobs that an era takes by variables.

    Raises:
        BadInputError: as `knob_words`.
    """
    by_variable = {key: spelling for key, spelling in era.knobs.items() if "env" in spelling}
    return {
        str(spelling["env"]): written(era, key, spelling, config[key])
        for key, spelling in by_variable.items()
        if key in config and config[key] != _AUTO
    }


def fact_words(era: Era, facts: Mapping[str, Any]) -> list[str]:
    """The words of `facts`, in the order of the era's table; facts that the era does not tell are left out."""
    found: list[str] = []
    for key, spelling in era.facts.items():
        if key in facts and facts[key] is not None:
            found += spelled(era, key, spelling, facts[key])
    return found


def spelled(era: Era, key: str, spelling: Spelling, value: Any) -> list[str]:
    """The words of one value.

    Raises:
        BadInputError: the table does not know the value, or it is none of int, float, bool and text.
    """
    if any(kind in spelling for kind in _SILENT):
        return []
    if "words" in spelling:
        return [str(word) for word in _known(era, key, spelling["words"], value)]
    text = written(era, key, spelling, value)
    flag = str(spelling["flag"])
    return [f"{flag}{text}"] if flag.rstrip().endswith("=") else [flag, text]


def written(era: Era, key: str, spelling: Spelling, value: Any) -> str:
    """A value as an argument: by the table `values` if there is one; otherwise numbers, and texts of facts.

    Raises:
        BadInputError: as `spelled`.
    """
    if "values" in spelling:
        return str(_known(era, key, spelling["values"], value))
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise BadInputError(f"{era.framework}: {key}={value!r} cannot be an argument", "use a number or a text")
    if isinstance(value, str) and key in era.knobs:
        raise BadInputError(f"{era.framework}: {key}={value!r} is not a number", f"give {key} a number")
    return str(value)


def _known(era: Era, key: str, table: Mapping[Any, Any], value: Any) -> Any:
    for choice, words in table.items():
        if key_of(choice) == key_of(value) and isinstance(choice, bool) == isinstance(value, bool):
            return words
    raise BadInputError(
        f"{era.framework} ({era.name}) cannot be told {key}={value!r}",
        f"it knows {', '.join(key_of(choice) for choice in table) or 'no value'}",
    )
