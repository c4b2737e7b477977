"""Checks the paths of `--sandbox-read`: they must not show what the sandbox is there to hide.

A read-only mount does not stop a command from connecting to a socket in it, so folders of sockets are refused too.
"""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from mainspring.domain.errors import InvalidInput
from mainspring.kinds.shell.sandbox.shown_paths import shown_paths

FOLDER = Path("/sandbox")  # the working folder of the run, inside

_FIELD = "sandbox_read"
# Neither these, nor a folder that contains one of them. What is below may be named.
_NOT_AS_A_WHOLE = {
    "/home": "the homes of all users",
    "/root": "the home of root",
    "/sys": "the devices of the machine",
    "/var/lib": "the data of services",
    "/var/tmp": "temporary files of others",
}
# These, what contains them, and what is below.
_NEVER = {
    "/dev": "devices; the sandbox has a /dev of its own",
    "/proc": "other processes; the sandbox has a /proc of its own",
    "/run": "sockets of services",
    "/etc/shadow": "the passwords of the machine",
    "/etc/ssh": "private keys",
    "/etc/ssl/private": "private keys",
    "/etc/pki/tls/private": "private keys",
}
_KEYS_AT_HOME = (
    ".aws", ".azure", ".config", ".docker", ".git-credentials", ".gnupg", ".kube", ".netrc", ".npmrc", ".pgpass",
    ".pypirc", ".ssh",
)  # fmt: skip
_WORK_FOLDERS = "mainspring-worker-"


def check_read_paths(given: Iterable[str | Path], private: Iterable[Path], environ: Mapping[str, str]) -> list[Path]:
    """The paths, if all may be shown. `private` are the token files and the data folder of this worker.

    Raises InvalidInput that names the path and what it would show. It also raises if the token file lies in what every
    sandbox shows, such as /usr.
    """
    secrets = [path.resolve() for path in private]
    for secret in secrets:
        for shown in shown_paths():
            if secret.is_relative_to(shown.resolve()):
                raise InvalidInput(
                    f"{secret} can be read in the sandbox, which shows {shown}",
                    field="sandbox",
                    hint="keep tokens and data elsewhere, such as in /etc/mainspring or in a home",
                )
    return [_checked(Path(path), secrets, environ) for path in given]


def _checked(path: Path, secrets: list[Path], environ: Mapping[str, str]) -> Path:
    if not path.is_absolute() or ".." in path.parts:
        raise _refused(path, "is not an absolute path", "write it from / on, without ..")
    try:
        real, mode = path.resolve(strict=True), path.stat().st_mode
    except OSError as error:
        raise _refused(
            path, f"cannot be read: {error.strerror or error}", "name a file or folder that exists"
        ) from None
    if not stat.S_ISDIR(mode) and not stat.S_ISREG(mode):
        raise _refused(path, "is neither a file nor a folder", "name a file or folder")
    if path == FOLDER or path.is_relative_to(FOLDER):
        raise _refused(path, "is the run's own folder inside the sandbox", "put it under another name")
    if (shows := _what_it_shows(real, secrets, environ)) is not None:
        raise _refused(path, f"would show {shows}", "name only what the commands need")
    return path


def _what_it_shows(real: Path, secrets: list[Path], environ: Mapping[str, str]) -> str | None:
    """What must stay hidden and is in this path, in words."""
    temporary = Path(tempfile.gettempdir()).resolve()
    home = Path(environ.get("HOME") or "/root").resolve()
    whole = {Path(path): what for path, what in _NOT_AS_A_WHOLE.items()}
    whole |= {temporary: "the folders of other runs", home: f"the home of this worker, {home}"}
    never = {Path(path): what for path, what in _NEVER.items()}
    never |= {home / name: f"keys in {home / name}" for name in _KEYS_AT_HOME}
    never |= {secret: f"{secret}, which belongs to this worker" for secret in secrets}
    if real == Path("/"):
        return "the whole machine"
    for path, what in never.items():
        if real.is_relative_to(path) or path.is_relative_to(real):
            return what
    for path, what in whole.items():
        if path.is_relative_to(real):
            return what
    if any(part.startswith(_WORK_FOLDERS) for part in real.parts):
        return "the folders of other runs"
    return None


def _refused(path: Path, why: str, hint: str) -> InvalidInput:
    return InvalidInput(f"{os.fspath(path)} {why}", field=_FIELD, hint=hint)
