"""Values of secret fields. A file does not have them: it says `{env: NAME}` or `{file: PATH}`, and they are read when
the files are planned or applied."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from mainspring.cli.job_files.file_reader import EntryOfFile, JobFiles

_LONGEST = 64 * 1024
_FORM = "{env: NAME} or {file: PATH}"


def with_secret_values(files: JobFiles, environment: Mapping[str, str] = os.environ) -> JobFiles:
    """The files with the values that they point to. Raises InvalidInput with file and line."""
    from mainspring.wire.files import FILE_KINDS

    return replace(
        files,
        entries=[_filled(entry, FILE_KINDS[entry.kind].secrets, environment) for entry in files.entries],
    )


def _filled(entry: EntryOfFile, names: tuple[str, ...], environment: Mapping[str, str]) -> EntryOfFile:
    found = {name: _value(entry, name, environment) for name in names if entry.body.get(name) is not None}
    return replace(entry, body={**entry.body, **found}) if found else entry


def _value(entry: EntryOfFile, name: str, environment: Mapping[str, str]) -> str:
    given: Any = entry.body[name]
    path = [entry.kind, entry.name, name]
    if not isinstance(given, dict) or len(given) != 1 or not isinstance(next(iter(given.values())), str):
        raise entry.part.wrong(path, f"{name} is secret, and a job file does not have it", f"write {name}: {_FORM}")
    source, where = str(next(iter(given))), str(next(iter(given.values())))
    if source == "env":
        if (value := environment.get(where)) is None:
            raise entry.part.wrong(
                path, f"the environment has no {where}", f"set it, or leave {name} out to keep the value that is stored"
            )
        return value
    if source != "file":
        raise entry.part.wrong([*path, source], f"{name}.{source} is unknown", f"write {name}: {_FORM}")
    file = Path(entry.part.file).parent / where
    try:
        with file.open("rb") as stream:
            text = stream.read(_LONGEST + 1).decode()
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise entry.part.wrong(path, f"{file} cannot be read: {why}") from None
    if len(text) > _LONGEST:
        raise entry.part.wrong(path, f"{file} is longer than a secret can be")
    return text.removesuffix("\n").removesuffix("\r")
