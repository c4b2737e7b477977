"""Runs a piece of Python of an import in a process of its own, with the interpreter that has the other scheduler."""

from __future__ import annotations

import subprocess

_SECONDS = 120


def run_python(python: str, program: str, *arguments: str) -> str:
    """What the program prints. Raises InvalidInput with the last line of its error."""
    from mainspring.domain.errors import InvalidInput

    try:
        done = subprocess.run(
            [python, "-c", program, *arguments], capture_output=True, text=True, timeout=_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise InvalidInput(f"{python} cannot be run: {error}", field="python") from None
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["it printed nothing"])[-1]
        raise InvalidInput(
            f"the import failed in {python}: {last}", field="execute", hint="--python names the interpreter that has it"
        )
    return done.stdout.strip().rpartition("\n")[2]
