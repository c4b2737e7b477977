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
    _, *words = shlex.split(line)
    command = typer.main.get_command(build())
    context = command.make_context("mainspring", [], resilient_parsing=True)
    while hasattr(command, "get_command"):
        name = words.pop(0)
        command = command.get_command(context, name)
        assert command is not None, name
        if hasattr(command, "get_command"):
            context = command.make_context(name, [], parent=context, resilient_parsing=True)
    command.make_context(line, words, parent=context)
