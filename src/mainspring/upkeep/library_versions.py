"""Which time zones and holidays this process has."""

from __future__ import annotations

import re
import zoneinfo
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import NamedTuple

from mainspring.domain.schedules.holiday_sets import library_version

_A_ZONE = "Europe/Berlin"
_TEXTS = ("+VERSION", "tzdata.zi", "version")  # files of a system that name the version of its zones
_VERSION = re.compile(r"(20\d\d)(?:([a-z])|\.(\d+))")
UNKNOWN = "0"


class LibraryVersions(NamedTuple):
    tzdata: str
    holidays: str


def library_versions() -> LibraryVersions:
    return LibraryVersions(_zones(), library_version())


def newer(one: str, other: str) -> str:
    """The newer of two versions; `one` if they are equal, such as 2026b and 2026.2."""
    return other if _parts(other) > _parts(one) else one


def _parts(text: str) -> list[int]:
    return [ord(part) - ord("a") + 1 if part.isalpha() else int(part) for part in re.findall(r"\d+|[a-z]", text)]


def _zones() -> str:
    """The zones of the system come before those of the package tzdata."""
    for folder in map(Path, zoneinfo.TZPATH):
        if (folder / _A_ZONE).is_file():
            return next(filter(None, (_version_in(folder / name) for name in _TEXTS)), UNKNOWN)
    try:
        return version("tzdata")
    except PackageNotFoundError:
        return UNKNOWN


def _version_in(file: Path) -> str | None:
    try:
        with file.open(encoding="utf-8", errors="replace") as text:
            found = _VERSION.search(text.readline())
    except OSError:
        return None
    return None if found is None else found[0]
