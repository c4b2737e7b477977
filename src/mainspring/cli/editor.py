"""Lets the user edit a JSON text in an editor, and finds what was changed."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from mainspring.cli.json_text import object_in
from mainspring.domain.errors import InvalidInput

_USUAL = ("editor", "nano", "vim", "vi")


def edit_text(text: str, name: str) -> str:
    """The text after the user has edited it in $VISUAL or $EDITOR. The file is private: payloads may be secret."""
    with tempfile.TemporaryDirectory(prefix="mainspring-edit-") as folder:
        file = Path(folder) / name
        file.write_text(text, encoding="utf-8")
        argv = [*_editor(), str(file)]
        try:
            code = subprocess.run(argv, check=False).returncode
        except OSError as error:
            raise InvalidInput(
                f"the editor {argv[0]!r} could not be started: {error}", field="EDITOR", hint="set EDITOR"
            ) from None
        if code != 0:
            raise InvalidInput(f"the editor ended with exit code {code}; nothing was changed", field="EDITOR")
        return file.read_text(encoding="utf-8")


def keep_text(text: str, name: str) -> Path:
    """Write a text that was typed and not accepted to a private file, and return where it is."""
    file = Path(tempfile.mkdtemp(prefix="mainspring-edit-")) / name
    file.write_text(text, encoding="utf-8")
    return file


def _editor() -> list[str]:
    for variable in ("VISUAL", "EDITOR"):
        try:
            words = shlex.split(os.environ.get(variable, ""))
        except ValueError as error:
            raise InvalidInput(f"{variable} cannot be read: {error}", field=variable, hint="check its quotes") from None
        if words:
            return words
    for name in _USUAL:
        if shutil.which(name):
            return [name]
    raise InvalidInput(
        "no editor is found", field="EDITOR", hint="set EDITOR, or give options such as --cron; see --help"
    )


def changed_fields(before: str, after: str) -> dict[str, Any]:
    """The fields that differ, with their new values. A field that was removed is None: it gets its default."""
    import msgspec

    new = object_in(after, "this", "$")
    old: dict[str, Any] = msgspec.json.decode(before)
    changed = {name: value for name, value in new.items() if name not in old or old[name] != value}
    return changed | {name: None for name in old if name not in new}
