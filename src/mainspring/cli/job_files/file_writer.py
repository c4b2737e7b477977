"""Writes job files as YAML that reads back as the same values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from mainspring.cli.job_files.variables import escaped
from mainspring.cli.workflow_file import is_plain_text

SCHEMA_LINE = "# yaml-language-server: $schema=mainspring.schema.json"
_WIDTH = 110


def job_file_text(
    owner: str, sections: Mapping[str, Mapping[str, Mapping[str, Any]]], notes: Iterable[str] = ()
) -> str:
    """The text of a file. `notes`: comments at its beginning."""
    lines = [SCHEMA_LINE, *(f"# {line}" for note in notes for line in note.splitlines())]
    return "\n".join([*lines, "", yaml_text({"owner": owner})]) + "".join(
        "\n" + _section(kind, entries) for kind, entries in sections.items() if entries
    )


def _section(kind: str, entries: Mapping[str, Mapping[str, Any]]) -> str:
    parts = [f"{kind}:\n"]
    for place, (name, body) in enumerate(entries.items()):
        text = yaml_text({escaped(name): escaped(dict(body))})
        parts.append(("\n" if place else "") + "".join(f"  {line}\n" if line else "\n" for line in text.splitlines()))
    return "".join(parts)


def with_comments(text: str, comments: Mapping[tuple[str, str], Sequence[str]]) -> str:
    """The text with comments above entries, by section and name."""
    found: list[str] = []
    section = ""
    for line in text.splitlines():
        if line and not line[0].isspace() and not line.startswith("#"):
            section = line.partition(":")[0]
        name = line.strip().rstrip(":{} ").strip("'\"") if line[:2] == "  " and line[2:3] not in ("", " ", "#") else ""
        found += [f"  # {one}" for one in comments.get((section, name), ())]
        found.append(line)
    return "\n".join(found) + "\n"


def yaml_text(value: Any) -> str:
    import yaml

    class Dumper(yaml.SafeDumper):  # type: ignore[misc] # yaml has no types
        def ignore_aliases(self, data: Any) -> bool:
            return True

        def increase_indent(self, flow: bool = False, indentless: bool = False) -> Any:
            return super().increase_indent(flow, False)

    def text(dumper: Any, data: str) -> Any:
        style = "|" if "\n" in data else None if is_plain_text(data) else '"'
        return dumper.represent_scalar("tag:yaml.org,2002:str", data, style=style)

    Dumper.add_representer(str, text)
    written: str = yaml.dump(
        value, Dumper=Dumper, sort_keys=False, allow_unicode=True, width=_WIDTH, default_flow_style=False
    )
    return written
