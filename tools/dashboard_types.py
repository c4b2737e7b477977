"""Writes the API types of the dashboard from the schemas of the OpenAPI document, and checks the dashboard with them.

git does not have the types. The build of the page does not need them, because it removes all types. tsc fails where the
dashboard and the API differ. It needs the packages that the build of the page installs (tools/page.py).
"""

from __future__ import annotations

import subprocess
import sys

import msgspec

from mainspring.api.app import app_without_a_server
from mainspring.api.openapi.document import document
from tools import page

TYPES = page.SOURCES / page.TYPES
PROGRAMS = page.SOURCES / "node_modules" / ".bin"
_TIMEOUT = 900


class Differs(Exception):
    """What tsc says of a dashboard that does not fit the API."""


def described() -> bytes:
    """A document with the schemas alone. Paths and the version of the product do not change the types."""
    schemas = document(app_without_a_server())["components"]["schemas"]
    info = {"title": "Mainspring", "version": "1"}
    whole = {"openapi": "3.1.0", "info": info, "paths": {}, "components": {"schemas": schemas}}
    return msgspec.json.encode(whole, order="sorted")


def can_check() -> bool:
    """Whether Node.js and the packages of the dashboard are there."""
    return page.has_npm() and (PROGRAMS / "tsc").exists() and (PROGRAMS / "openapi-typescript").exists()


def write(described_by: bytes) -> None:
    """Write the types of this document."""
    made = _run(["openapi-typescript", "--root-types", "--root-types-no-schema-prefix"], described_by)
    if not TYPES.is_file() or TYPES.read_text() != made:
        TYPES.write_text(made)


def check() -> None:
    """Raises Differs if the dashboard uses something that the types do not have."""
    _run(["tsc", "--noEmit"])


def _run(command: list[str], given: bytes = b"") -> str:
    _, environment = page.npm()
    done = subprocess.run(
        [PROGRAMS / command[0], *command[1:]], input=given, capture_output=True, cwd=page.SOURCES, env=environment,
        check=False, timeout=_TIMEOUT,
    )  # fmt: skip
    if done.returncode != 0:
        raise Differs(f"{done.stdout.decode()}{done.stderr.decode()}")
    return done.stdout.decode()


def main() -> int:
    if not can_check():
        print("the dashboard is not checked: its packages are not installed; `make page` installs them")
        return 0
    try:
        write(described())
        check()
    except Differs as error:
        sys.stderr.write(str(error))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
