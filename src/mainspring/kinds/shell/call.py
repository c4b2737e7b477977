"""The command of a shell task. Text is run by /bin/sh, and a list is a program with its arguments."""

from __future__ import annotations

CALL_IN = CALL = str | list[str]


def in_words(command: str | list[str]) -> str:
    return command if isinstance(command, str) else " ".join(command)
