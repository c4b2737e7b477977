"""A process that has loaded its modules waits until its parent lets it go on. So `mainspring up` loads the server
while PostgreSQL starts. The parent closes the standard input of the process, or ends: both let it go on."""

from __future__ import annotations

import os

_VARIABLE = "MAINSPRING_HELD_START"


def held_start(held: bool) -> dict[str, str]:
    """The environment of a process that shall wait, or not."""
    return {_VARIABLE: "1"} if held else {}


def wait_until_released() -> None:
    """Call this after the imports. Children of this process inherit neither the variable nor the input."""
    if not os.environ.pop(_VARIABLE, None):
        return
    try:
        while os.read(0, 4096):
            pass
    except OSError:  # there is no input
        return
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
