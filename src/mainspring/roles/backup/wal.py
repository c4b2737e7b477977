"""The archive of the WAL in a folder of backups: one folder for each archive, one file for each segment.

An archive belongs to one history of the database. A restored database begins another one, so two of them never write
segments of the same name. The segment that is being written is archived as `.partial`, again and again.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from shutil import copyfileobj

from mainspring.kernel.private_files import sync_folder
from mainspring.roles.backup.sealed_files import Keys, damaged, reading, writing

SEGMENT_BYTES = 16 * 1024 * 1024
PARTIAL = ".partial"
_SEGMENT = re.compile(r"[0-9A-F]{24}")
_PER_LOG = 0x100000000 // SEGMENT_BYTES


def segment_of(timeline: int, lsn: str) -> str:
    """The name of the segment with this place of the WAL, such as 0/4000028."""
    high, low = (int(part, 16) for part in lsn.split("/"))
    return segment_name(timeline, (high << 32 | low) // SEGMENT_BYTES)


def segment_name(timeline: int, number: int) -> str:
    return f"{timeline:08X}{number // _PER_LOG:08X}{number % _PER_LOG:08X}"


def number_of(segment: str) -> int:
    return int(segment[8:16], 16) * _PER_LOG + int(segment[16:24], 16)


def is_segment(name: str) -> bool:
    return _SEGMENT.fullmatch(name) is not None


class WalArchive:
    """One archive."""

    def __init__(self, folder: Path, keys: Keys) -> None:
        self.folder = folder
        self._keys = keys

    def put(self, source: Path, name: str) -> None:
        """Archive a file of the WAL. It appears with its whole content, and replaces an earlier one of this name."""
        self.folder.parent.mkdir(mode=0o700, exist_ok=True)
        self.folder.mkdir(mode=0o700, exist_ok=True)
        draft = self.folder / f".{name}"
        try:
            with source.open("rb") as file, writing(draft, self._keys, self._place(name)) as (target, _):
                copyfileobj(file, target, 1024 * 1024)
            draft.replace(self.folder / f"{name}.gz")
        finally:
            draft.unlink(missing_ok=True)
        sync_folder(self.folder)
        if is_segment(name):
            (self.folder / f"{name}{PARTIAL}.gz").unlink(missing_ok=True)

    def get(self, segment: str, target: Path) -> bool:
        """Write a segment to `target`, which appears with its whole content. The part of the last one will do."""
        draft = target.with_name(f"{target.name}.new")
        for name in (segment, segment + PARTIAL, segment):  # the whole one appears before the part goes
            path = self.folder / f"{name}.gz"
            if not path.exists():
                continue
            try:
                with reading(path, self._keys, self._place(name)) as source, draft.open("wb") as file:
                    copyfileobj(source, file, 1024 * 1024)
            except FileNotFoundError:
                continue
            if draft.stat().st_size != SEGMENT_BYTES:
                raise damaged(path, "it has the wrong size")
            draft.rename(target)
            return True
        return False

    def segments(self) -> list[str]:
        """The segments that are there, in order. The part of the last one counts."""
        if not self.folder.is_dir():
            return []
        names = {path.name.removesuffix(".gz").removesuffix(PARTIAL) for path in self.folder.glob("*.gz")}
        return sorted(name for name in names if is_segment(name))

    def newest(self) -> float | None:
        """When the newest file was archived, in seconds since 1970."""
        return max(self.times().values(), default=None)

    def times(self) -> dict[int, float]:
        """When each segment was archived, by its number, in seconds since 1970."""
        found = {}
        for name in self.segments():
            for ending in (PARTIAL, ""):  # the whole one appears before the part goes
                with suppress(FileNotFoundError):
                    found[number_of(name)] = (self.folder / f"{name}{ending}.gz").stat().st_mtime
        return found

    def prune(self, before: str) -> int:
        """Remove the segments before this one. Returns how many."""
        old = [name for name in self.segments() if number_of(name) < number_of(before)]
        for name in old:
            for ending in ("", PARTIAL):
                (self.folder / f"{name}{ending}.gz").unlink(missing_ok=True)
        return len(old)

    def _place(self, name: str) -> str:
        return f"wal/{self.folder.name}/{name}"


def first_gap(segments: Iterable[str], start: str) -> str | None:
    """The first segment from `start` on that is missing though a later one is there. None: there is no gap."""
    there = {number_of(name) for name in segments if number_of(name) >= number_of(start)}
    if not there:
        return None
    number = number_of(start)
    while number in there:
        number += 1
    return None if number > max(there) else segment_name(int(start[:8], 16), number)
