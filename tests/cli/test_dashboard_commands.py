"""Every dialog of the dashboard that changes something offers the same as a command, curl or Python, which exist."""

from __future__ import annotations

import re
from pathlib import Path

from mainspring import Client
from mainspring.cli.commands import load_noun

SOURCES = Path(__file__).resolve().parents[2] / "dashboard" / "src"
PAGES = {path.relative_to(SOURCES).as_posix(): path.read_text() for path in SOURCES.rglob("*.tsx")}
# What one does as a person, with a password; and an example.
WITHOUT = {"pages/settings/OwnAccount.tsx": 3, "pages/patterns/PatternsPage.tsx": 1}


def test_every_dialog_has_its_command() -> None:
    missing = {}
    for name, text in PAGES.items():
        dialogs = [part.split("</Confirm>")[0] for part in text.split("<Confirm ")[1:] + text.split("<Confirm\n")[1:]]
        without = sum("same=" not in dialog for dialog in dialogs)
        if without:
            missing[name] = without
    assert missing == WITHOUT


def test_the_commands_and_calls_exist() -> None:
    everything = "\n".join(PAGES.values())
    commands = set(re.findall(r'command: \["([a-z-]+)", "([a-z-]+)"', everything))
    assert len(commands) > 15
    for noun, verb in commands:
        assert verb in {one.name for one in load_noun(noun).listed}, f"mainspring {noun} {verb}"
    calls = set(re.findall(r'python: \["([a-z_]+)"', everything))
    assert len(calls) > 15
    assert [call for call in calls if not hasattr(Client, call)] == []
