"""Confines the process that loads apprise: no address that may not be called, no file but those of Python, no program.

An audit hook sees each call of Python that opens a connection, a file or a process, also those of plugins and of the
libraries below them, and cannot be removed. What a library written in C does by itself it does not see. Resolving names
is not confined.
"""

from __future__ import annotations

import os
import resource
import signal
import socket
import sys
import sysconfig
from collections.abc import Callable
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import mainspring
from mainspring.kinds.http.address_guard import AddressGuard, AddressRefused

_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_SENDING = frozenset({"socket.connect", "socket.sendto", "socket.sendmsg"})
_FORBIDDEN = frozenset(
    {
        "subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.fork", "os.forkpty", "pty.spawn",
        "os.kill", "os.killpg", "os.remove", "os.rename", "os.mkdir", "os.rmdir", "os.link", "os.symlink", "os.chmod",
        "os.chown", "os.truncate", "os.utime", "os.chdir", "os.setxattr", "os.removexattr", "sqlite3.connect",
        "shutil.rmtree", "shutil.move", "ftplib.connect",
    }
)  # fmt: skip
_READABLE = ("/etc/mime.types", "/etc/localtime", "/usr/share/zoneinfo/", "/etc/ssl/", "/usr/lib/ssl/")


class Confined(PermissionError):
    """Something that this process may not do."""


class Confinement:
    """refused: the last address that was refused."""

    def __init__(self, guard: AddressGuard, readable: tuple[str, ...]) -> None:
        self.refused: str | None = None
        self._guard = guard
        paths = (sysconfig.get_paths()[name] for name in ("stdlib", "platstdlib", "purelib", "platlib"))
        folders = {os.path.realpath(path) + "/" for path in (*paths, str(Path(mainspring.__file__).parents[1]))}
        self._readable = (*folders, *_READABLE, *readable)
        self._hosts: dict[str, set[str]] = {}

    def begin(self) -> None:
        """Nothing ends it."""
        sys.dont_write_bytecode = True
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        for kind in (resource.RLIMIT_FSIZE, resource.RLIMIT_CORE):  # C code writes no file either
            resource.setrlimit(kind, (0, 0))
        resolve = socket.getaddrinfo

        def remembering(host: Any, *args: Any, **kwargs: Any) -> Any:
            found = resolve(host, *args, **kwargs)
            name = host.decode("ascii", "replace") if isinstance(host, bytes) else str(host or "")
            for entry in found:
                self._hosts.setdefault(str(entry[4][0]), set()).add(name.lower().rstrip("."))
            return found

        socket.getaddrinfo = remembering
        sys.addaudithook(self._hook)

    def _hook(self, event: str, args: tuple[Any, ...]) -> None:
        if event == "open":
            self._check_open(*args)
        elif event in _SENDING:
            if args[1] is not None:
                self._check_address(args[1])
        elif event in _FORBIDDEN or event.startswith("syslog."):
            raise Confined(event)
        elif event == "socket.bind":
            if not (isinstance(args[1], tuple) and len(args[1]) > 1 and args[1][1] == 0):
                raise Confined(event)
        elif event == "ctypes.dlopen" and args[0] is not None:
            raise Confined(event)

    def _check_open(self, path: Any, mode: str | None, flags: int) -> None:
        if isinstance(path, int):
            return
        text = os.fsdecode(path)
        writing = flags & _WRITING if mode is None else not frozenset("wax+").isdisjoint(mode)
        if text == os.devnull:
            return
        if writing or not os.path.realpath(text).startswith(self._readable):
            raise Confined("open")

    def _check_address(self, address: Any) -> None:
        """Only numbers are checked: what is given as a name would be resolved after the check."""
        host, port = (address[0], address[1]) if isinstance(address, tuple) and len(address) > 1 else (None, 0)
        try:
            number = str(ip_address(str(host).partition("%")[0]))
        except ValueError:
            self.refused = "an address that is not a number"
            raise Confined("connect") from None
        names = {*self._hosts.get(str(host), ()), number}
        if not any(self._allows(name, int(port), number) for name in names):
            self.refused = f"{number} port {port}"
            raise Confined("connect")

    def _allows(self, name: str, port: int, number: str) -> bool:
        try:
            self._guard.check("tcp", name, port, [number])
        except AddressRefused:
            return False
        return True


def watched(kind: Any, method: str, seen: Callable[[Any], None]) -> None:
    """Let `seen` have what each call of this method returns."""
    call = getattr(kind, method)

    def calling(*args: Any, **kwargs: Any) -> Any:
        found = call(*args, **kwargs)
        seen(found)
        return found

    setattr(kind, method, calling)
