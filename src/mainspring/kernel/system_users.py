"""Creates system users: the account of the embedded PostgreSQL, and that of the commands of a root worker."""

from __future__ import annotations

import fcntl
import os
import pwd
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

_NO_HOME = "/nonexistent"
_SYSTEM_PATH = "/usr/sbin:/sbin:/usr/bin:/bin"


def ensure_system_user(name: str) -> tuple[pwd.struct_passwd | None, str]:
    """The entry of the user, created if it is missing, without a home and a login. The text says that it was created,
    or, without an entry, why it could not be."""
    with _creation_lock():
        entry = user_entry(name)
        if entry is not None:
            return entry, ""
        problem = _create(name)
        entry = user_entry(name)
    return entry, problem if entry is None else f"created the system user {name}"


def user_entry(name: str) -> pwd.struct_passwd | None:
    try:
        return pwd.getpwnam(name)
    except KeyError:
        return None


@contextmanager
def _creation_lock() -> Iterator[None]:
    """A lock for two first starts on one machine. `useradd` checks the name before it takes its own lock, so the second
    call would fail or create the user again with another number. The lock is on the folder, so no file is left."""
    descriptor = os.open("/etc", os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _create(name: str) -> str:
    """Returns the problem, or nothing."""
    search = f"{os.environ.get('PATH', '')}:{_SYSTEM_PATH}"  # root's PATH may lack /usr/sbin
    no_login = shutil.which("nologin", path=search) or "/bin/false"
    ways = (
        ["useradd", "--system", "--user-group", "--no-create-home", "--home-dir", _NO_HOME, "--shell", no_login],
        ["adduser", "-S", "-D", "-H", "-h", _NO_HOME, "-s", no_login],  # of busybox
    )
    problem = "there is no useradd"
    for way in ways:
        program = shutil.which(way[0], path=search)
        if program is None:
            continue
        try:
            subprocess.run([program, *way[1:], name], check=True, capture_output=True, text=True)
        except subprocess.CalledProcessError as error:
            problem = error.stderr.strip() or str(error)
        except OSError as error:
            problem = str(error)
        else:
            return ""
    return problem
