"""Loads an application in a process of its own, before anything is started for it.

Its modules are code of the user. They must not be imported into a process that has the database's password, and may
take any time to load.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import Mapping

from mainspring.domain.errors import InvalidInput
from mainspring.kernel.logs import get_logger
from mainspring.kernel.parent_death import die_with_parent

_PATIENCE = 60.0
_REFUSED = 3
_MARK = "mainspring-cannot-load"

log = get_logger("up")


async def check_application(name: str, environment: Mapping[str, str], patience: float = _PATIENCE) -> None:
    """Raise InvalidInput if `module:attribute` cannot be loaded here."""
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "mainspring.roles.application_check", name),
        env=dict(environment),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        preexec_fn=die_with_parent(signal.SIGKILL),
    )
    try:
        output, errors = await asyncio.wait_for(child.communicate(), patience)
    except TimeoutError:
        log.warning("the application takes long to load; starting anyway", app=name, seconds=patience)
        return
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()
    if child.returncode == _REFUSED and (problem := _read_problem(output)) is not None:
        raise InvalidInput(problem["detail"], field="app", hint=problem["hint"])
    if child.returncode != 0:
        said = errors.decode("utf-8", "replace").strip().splitlines()
        raise InvalidInput(
            f"app: importing {name} ended the process with exit code {child.returncode}"
            + (f": {said[-1]}" if said else ""),
            field="app",
            hint="a module must not end the process when it is imported",
        )


def _read_problem(output: bytes) -> dict[str, str] | None:
    """The last line of the output, unless the application itself ended the process with the same exit code."""
    mark, _, text = (output.splitlines() or [b""])[-1].partition(b" ")
    return json.loads(text) if mark == _MARK.encode() else None


def main(name: str) -> int:
    from mainspring.worker.execution.application import load_app

    try:
        load_app(name)
    except InvalidInput as error:
        sys.stdout.write(f"\n{_MARK} " + json.dumps({"detail": error.detail, "hint": error.hint}) + "\n")
        return _REFUSED
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
