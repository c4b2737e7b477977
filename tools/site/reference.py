"""Pages of the site that are made from the code: the command line, the settings, the HTTP API, and the SDK, whose page
names what mkdocstrings then reads."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import typer.main

import mainspring
from mainspring.api.app import app_without_a_server
from mainspring.api.openapi.document import document
from mainspring.cli.main import build
from mainspring.cli.settings import all_settings

_SDK = "docs/reference/sdk.md"
_WITHOUT = ("__version__",)


def pages() -> dict[str, str]:
    """The pages by their paths in the site."""
    return {
        _SDK: "\n".join(_sdk()),
        "docs/reference/command-line.md": "\n".join(_command_line()),
        "docs/reference/settings.md": "\n".join(_settings()),
        "docs/reference/http-api.md": "\n".join(_http_api()),
    }


def _sdk() -> Iterator[str]:
    yield "# Python SDK\n\nEverything that `mainspring` exports.\n"
    for name in mainspring.__all__:
        if name in _WITHOUT:
            continue
        one = getattr(mainspring, name)
        home = getattr(one, "__module__", None)
        if home is None or not str(home).startswith("mainspring."):
            yield f"## {name}\n\nA type: `{one}`.\n"
            continue
        options = "    options:\n      show_root_heading: false\n      heading_level: 3\n"
        yield f"## {name}\n\n::: {home}.{one.__name__}\n{options}"


def _command_line() -> Iterator[str]:
    yield "# Commands\n\nEvery command with its options. How they work together: [command line](../command-line.md).\n"
    yield from _commands(typer.main.get_command(build()), ["mainspring"])


def _commands(group: Any, path: list[str]) -> Iterator[str]:
    for name, command in sorted(group.commands.items()):
        if command.hidden:
            continue
        words = [*path, name]
        if hasattr(command, "commands"):
            yield f"## {' '.join(words)}\n\n{_prose(command.help)}\n"
            yield from _commands(command, words)
            continue
        yield f"### {' '.join(words)}\n\n{_prose(command.help)}\n"
        rows = [
            f"| {', '.join(f'`{one}`' for one in (*part.opts, *part.secondary_opts))} "
            f"| {_cell(getattr(part, 'help', ''))} |"
            for part in command.params
            if not getattr(part, "hidden", False)
        ]
        if rows:
            yield "| option | what it is |\n| --- | --- |\n" + "\n".join(rows) + "\n"


def _settings() -> Iterator[str]:
    yield "# Settings\n\n[Operating](../operating.md#the-settings-file) says where they are written.\n"
    yield "| setting | option | variable | of | default | what it is |\n| --- | --- | --- | --- | --- | --- |"
    for one in all_settings():
        cells = (one.key, one.option, one.variable, ", ".join(one.commands), one.default, one.help)
        yield "| " + " | ".join(_cell(cell) for cell in cells) + " |"


def _http_api() -> Iterator[str]:
    said = document(app_without_a_server())
    yield "# HTTP operations\n"
    yield "Made from the OpenAPI document, which a server has at `/schema/openapi.json` and shows at `/docs`.\n"
    by_tag: dict[str, list[tuple[str, str, Any]]] = {}
    for path, verbs in said["paths"].items():
        for verb, operation in verbs.items():
            if isinstance(operation, dict) and "responses" in operation:
                tag = (operation.get("tags") or ["other"])[0]
                by_tag.setdefault(tag, []).append((verb.upper(), path, operation))
    for tag, found in by_tag.items():
        yield f"## {tag}\n"
        for verb, path, operation in found:
            yield f"### `{verb} {path}`\n\n**{operation.get('summary', '')}.** {_prose(operation.get('description'))}\n"
            parameters = [one for one in operation.get("parameters", ()) if "name" in one]
            if parameters:
                yield "| parameter | in | what it is |\n| --- | --- | --- |"
                for one in parameters:
                    yield f"| `{one['name']}` | {one.get('in', '')} | {_cell(one.get('description', ''))} |"
                yield ""
            said_of = operation["responses"].items()
            yield "Answers: " + ", ".join(f"{code} {_cell(one.get('description', ''))}" for code, one in said_of) + "\n"


def _prose(text: str | None) -> str:
    return " ".join((text or "").split()).replace("<", "&lt;").replace("[", "\\[")


def _cell(text: Any) -> str:
    return _prose(str(text or "")).replace("|", "\\|")
