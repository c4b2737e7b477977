"""Where a server finds the master keys of its secrets: a command, the environment, a file, or its data folder."""

from __future__ import annotations

import asyncio
import os
import shlex
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from mainspring.domain.errors import InvalidInput
from mainspring.kernel.config import MASTER_KEY_FILE_NAME
from mainspring.kernel.logs import get_logger
from mainspring.kernel.ownership import read_own
from mainspring.operations.secrets.master_keys import ReadKeys, keys_in, new_key

KEY_VARIABLE = "MAINSPRING_MASTER_KEY"
FILE_VARIABLE = f"{KEY_VARIABLE}_FILE"
COMMAND_VARIABLE = f"{KEY_VARIABLE}_COMMAND"
VARIABLES = (KEY_VARIABLE, FILE_VARIABLE, COMMAND_VARIABLE)
_COMMAND_SECONDS = 10.0
_MOST_BYTES = 64 * 1024

log = get_logger("secrets")


def key_reader(data: Path, environ: Mapping[str, str] = os.environ) -> ReadKeys:
    """Reads the keys as the environment says, and otherwise those of the data folder, if it has some. Raises
    InvalidInput if the environment says it twice, or if a key in it is wrong."""
    given = [name for name in VARIABLES if environ.get(name)]
    if len(given) > 1:
        raise InvalidInput(
            f"{given[0]} and {given[1]} both say where the master keys are", field=given[1], hint="set one of them"
        )
    text, file, command = (environ.get(name, "") for name in VARIABLES)
    if text:
        keys_in(text)

        async def from_text() -> str | None:
            return text

        return from_text
    if command:
        words = shlex.split(command)

        async def from_command() -> str | None:
            return await _output_of(words)

        return from_command
    path = Path(file) if file else None

    async def from_file() -> str | None:
        if path is not None:
            return path.read_text()
        found = read_own(data, MASTER_KEY_FILE_NAME)
        return None if found is None else found.decode("ascii", "replace")

    return from_file


def ensure_master_key(folder: Path, environ: Mapping[str, str] = os.environ) -> bool:
    """Make a master key in the data folder (mode 0600), unless it has one or the environment names one. Return whether
    one was made."""
    path = folder / MASTER_KEY_FILE_NAME
    if any(environ.get(name) for name in VARIABLES) or os.path.lexists(path):
        return False
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(f"{new_key()}\n")
        file.flush()
        os.fsync(descriptor)
    return True


def add_master_key(path: Path) -> None:
    """Put a new key before the others in this file, which appears with its content. Raises OSError."""
    with suppress(FileNotFoundError):
        keys_in(before := path.read_text())
        _write(path, f"{new_key()}\n{before}")
        return
    _write(path, f"{new_key()}\n")


def _write(path: Path, text: str) -> None:
    draft = path.with_name(f"{path.name}.new")
    draft.unlink(missing_ok=True)
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(text)
        file.flush()
        os.fsync(descriptor)
    draft.replace(path)


async def _output_of(words: list[str]) -> str:
    """What the command prints. Raises OSError; the message has nothing of what it printed."""
    process = await asyncio.create_subprocess_exec(
        *words, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
    )
    try:
        async with asyncio.timeout(_COMMAND_SECONDS):
            output, _ = await process.communicate()
    except TimeoutError:
        process.kill()
        await process.wait()
        raise OSError(f"{COMMAND_VARIABLE} did not end within {_COMMAND_SECONDS:.0f} s") from None
    if process.returncode != 0 or len(output) > _MOST_BYTES:
        raise OSError(f"{COMMAND_VARIABLE} ended with exit code {process.returncode} and {len(output)} bytes")
    return output.decode("ascii", "replace")
