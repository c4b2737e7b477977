"""The allow-list of the sandbox: programs, libraries, and the settings in /etc that they read.

Nothing else of the machine exists inside: no homes, no /var, no /run, no /opt. `--sandbox-read` adds to it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

# On most systems all but /usr are symbolic links into it.
SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
# Patterns below /etc. Settings of other programs may contain passwords, and are not shown. Each mount takes 0.2 ms.
SETTINGS = (
    "alternatives",
    "crypto-policies",
    "fonts",
    "java-*",  # a Debian Java does not start without it
    "ld.so.cache",
    "ld-musl-*.path",
    "locale.conf",
    "localtime",
    "mime.types",
    "os-release",
    "pki/ca-trust/extracted",
    "pki/tls/cert.pem",
    "pki/tls/certs",
    "protocols",
    "services",
    "ssl/ca-bundle.pem",
    "ssl/cert.pem",
    "ssl/certs",
    "ssl/openssl.cnf",
    "timezone",
)
_ETC = Path("/etc")

# The user inside. The other accounts of the machine have no names there.
USER = "sandbox"
USER_ID = 1000
# Files of the sandbox that do not come from the machine. No service is asked for users or hosts.
WRITTEN: dict[str, bytes] = {
    "/etc/passwd": f"{USER}:x:{USER_ID}:{USER_ID}:{USER}:/sandbox:/bin/sh\n"
    "nobody:x:65534:65534:nobody:/nonexistent:/bin/false\n".encode(),
    "/etc/group": f"{USER}:x:{USER_ID}:\nnogroup:x:65534:\n".encode(),
    "/etc/hosts": b"127.0.0.1 localhost sandbox\n::1 localhost sandbox\n",
    "/etc/nsswitch.conf": b"passwd: files\ngroup: files\nhosts: files\nservices: files\nprotocols: files\n",
}


def shown_paths() -> list[Path]:
    """The paths of the allow-list that exist on this machine."""
    return [path for path in (*map(Path, SYSTEM), *_settings()) if path.exists()]


def mount_options() -> list[str]:
    """The options of bwrap that show them. A symbolic link to something that is shown stays one: programs read the
    name of the time zone from /etc/localtime."""
    shown = shown_paths()
    real = [path for path in shown if not path.is_symlink()]
    options: list[str] = []
    for path in shown:
        if path.is_symlink() and any(path.resolve().is_relative_to(folder) for folder in real):
            options += ["--symlink", os.readlink(path), str(path)]  # noqa: PTH115 - as it is written
        else:
            options += ["--ro-bind", str(path), str(path)]
    return options


def _settings() -> Iterator[Path]:
    for pattern in SETTINGS:
        yield from sorted(_ETC.glob(pattern))
