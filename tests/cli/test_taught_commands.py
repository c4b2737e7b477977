"""The commands that empty pages of the dashboard teach can be typed as they are."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import typer

from mainspring.cli.main import build

PAGES = Path(__file__).resolve().parents[2] / "dashboard" / "src" / "pages"
TAUGHT = sorted(
    {
        found
        for page in PAGES.rglob("*.tsx")
        for found in re.findall(r'command=\{?"(mainspring [^"]+)"', page.read_text())
    }
)


def test_pages_teach_commands() -> None:
    assert len(TAUGHT) > 8


@pytest.mark.parametrize("line", TAUGHT)
def test_the_command_and_its_options_exist(line: str) -> None:
    name, *words = shlex.split(line)
    command, context = typer.main.get_command(build()), None
    while hasattr(command, "resolve_command"):
        context = command.make_context(name, words, parent=context)
        name, command, words = command.resolve_command(context, [*context._protected_args, *context.args])
        assert not command.hidden, "an earlier name"
    command.make_context(name, words, parent=context)
