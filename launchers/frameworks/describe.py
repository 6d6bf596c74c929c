"""The part of docs/spaces.md that lists the bundled spaces."""

from __future__ import annotations

from launchers.frameworks import templates


def document() -> str:
    """One section for each bundled space: its knobs, when they are offered, and its constraints."""
    return "\n".join(line for name in templates.names() for line in _section(name)).rstrip() + "\n"


def _section(name: str) -> list[str]:
    template = templates.read(name)
    lines = [f"### {name}", "", f"World size: `{template['world_size']}`.", ""]
    lines += ["| knob | choices | offered | meaning |", "|---|---|---|---|"]
    for knob in template["knobs"]:
        choices = ", ".join(_yaml(choice) for choice in knob["choices"])
        offered = " ".join(str(knob.get("when", "always")).split())
        lines.append(f"| `{knob['key']}` | {choices} | {_code(offered)} | {knob['description']} |")
    lines += ["", "| constraint | expression | meaning |", "|---|---|---|"]
    for rule in template["constraints"]:
        expression = " ".join(str(rule["expression"]).split())
        lines.append(f"| `{rule['name']}` | `{expression}` | {' '.join(rule['message'].split())} |")
    return [*lines, ""]


def _yaml(choice: object) -> str:
    return str(choice).lower() if isinstance(choice, bool) else str(choice)


def _code(text: str) -> str:
    return text if text == "always" else f"`{text}`"


if __name__ == "__main__":
    import sys

    sys.stdout.write(document())
