"""A folder of backups.

    mainspring-backups          marks the folder as ours
    20261118T201500Z-3f9a/      one backup: backup.json, base.tar.gz, and folder.json.gz if it is encrypted
    wal/ARCHIVE/                the segments of one archive (wal.py)

A backup is written as `.draft-ID` and renamed when all of it is on the disk. So what has a name is complete.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Annotated

import msgspec

from mainspring.domain.errors import Conflict, InvalidInput, MainspringError, NotFound, not_ours
from mainspring.kernel.logs import get_logger
from mainspring.kernel.ownership import ForeignFile, require_own
from mainspring.kernel.private_files import sync_folder
from mainspring.roles.backup.sealed_files import Keys, damaged
from mainspring.roles.backup.wal import WalArchive, number_of, segment_of

FORMAT = 1
BASE_NAME, FOLDER_NAME = "base.tar.gz", "folder.json.gz"
_MARK, _LOCK, _FACTS, _WAL, _DRAFT = "mainspring-backups", ".lock", "backup.json", "wal", ".draft-"

_Moment = Annotated[datetime, msgspec.Meta(tz=True)]
log = get_logger("backup")


class Backup(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What backup.json says. `archive`: which archive has the WAL after it. `size`: of the data; `stored`: of the file.
    `key`: the id of the key; None if it is not encrypted."""

    format: int = FORMAT
    id: str
    started_at: _Moment
    ended_at: _Moment
    mainspring: str
    postgres: int
    timeline: int
    start_lsn: str
    end_lsn: str
    size: int
    stored: int
    sha256: str
    archive: str | None = None
    key: str | None = None

    @property
    def first_segment(self) -> str:
        """The first segment of the WAL that this backup needs."""
        return segment_of(self.timeline, self.start_lsn)

    @property
    def last_segment(self) -> str:
        """The last segment of the WAL that it contains."""
        return segment_of(self.timeline, self.end_lsn)


class Listed(msgspec.Struct, frozen=True):
    """A backup, until when it can be restored, and what is wrong with it. `until` is None without an archive."""

    backup: Backup
    until: datetime | None
    fault: str | None


class Repository:
    def __init__(self, folder: Path, keys: Keys) -> None:
        self.folder = folder.absolute()
        self.keys = keys

    # -- writing

    def prepare(self) -> None:
        """Make the folder, or check that it is ours."""
        try:
            require_own(self.folder)
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            entries = {path.name for path in self.folder.iterdir()} - {_LOCK}
        except ForeignFile as error:
            raise not_ours(error) from None
        except OSError as error:
            raise InvalidInput(f"{self.folder} cannot be used for backups: {error}", field="backup") from error
        if _MARK not in entries:
            if entries:
                raise InvalidInput(
                    f"{self.folder} has other files, and no backups",
                    field="backup",
                    hint="name a new or an empty folder",
                )
            (self.folder / _MARK).touch(mode=0o600)
        self.folder.chmod(0o700)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Only one process at a time writes backups, and removes old ones. The kernel ends this when it ends."""
        descriptor = os.open(self.folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise Conflict(f"another process is writing a backup to {self.folder}", code="backup_running") from None
            for draft in self.folder.glob(f"{_DRAFT}*"):  # of a process that was killed
                shutil.rmtree(draft)
            yield
        finally:
            os.close(descriptor)

    def new_id(self, now: datetime) -> str:
        return f"{now:%Y%m%dT%H%M%SZ}-{secrets.token_hex(2)}"

    @contextmanager
    def draft(self, backup_id: str) -> Iterator[Path]:
        """A folder for a new backup. It is removed if the block raises."""
        folder = self.folder / f"{_DRAFT}{backup_id}"
        folder.mkdir(mode=0o700)
        try:
            yield folder
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise

    def publish(self, draft: Path, backup: Backup) -> None:
        """From now on the backup is listed."""
        facts = draft / _FACTS
        with os.fdopen(os.open(facts, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(msgspec.json.format(msgspec.json.encode(backup)))
            file.flush()
            os.fsync(file.fileno())
        sync_folder(draft)
        draft.rename(self.folder / backup.id)
        sync_folder(self.folder)

    def prune(self, keep: int, archives: Collection[str]) -> list[str]:
        """Remove all but the newest backups of these archives, and the WAL that none of these needs. Returns what was
        removed. A backup that is damaged does not count, so that a good one stays. Other archives are of other
        installations."""
        listed = [one for one in self.listed() if one.backup.archive in archives]
        good = [one for one in listed if one.fault is None]
        kept = good[-keep:]
        if not kept:
            return []
        oldest = kept[0].backup.started_at
        removed = [one.backup.id for one in listed if one.backup.started_at < oldest]
        for backup_id in removed:
            old = (self.folder / backup_id).rename(self.folder / f"{_DRAFT}{backup_id}")
            shutil.rmtree(old)
        needed: dict[str, str] = {}
        for one in kept:
            if one.backup.archive is not None:
                needed.setdefault(one.backup.archive, one.backup.first_segment)
        for archive in map(self.archive, archives):
            if archive.folder.name in needed:
                archive.prune(needed[archive.folder.name])
            elif archive.folder.is_dir() and (archive.newest() or 0.0) < oldest.timestamp():
                shutil.rmtree(archive.folder)
        return removed

    # -- reading

    def archive(self, archive_id: str) -> WalArchive:
        return WalArchive(self.folder / _WAL / archive_id, self.keys)

    def base_file(self, backup: Backup) -> Path:
        return self.folder / backup.id / BASE_NAME

    def folder_file(self, backup: Backup) -> Path:
        return self.folder / backup.id / FOLDER_NAME

    def listed(self) -> list[Listed]:
        """All backups, the oldest first, without those whose backup.json cannot be read. Raises NotFound if this is no
        folder of backups."""
        backups = self._backups()
        archives = {backup.archive for backup in backups if backup.archive is not None}
        times = {archive: self.archive(archive).times() for archive in archives}
        return [
            Listed(backup, _until(backup, times[backup.archive]) if backup.archive else None, self._fault(backup))
            for backup in backups
        ]

    def newest(self, archive: str | None) -> Backup | None:
        """The newest good backup with this archive. It looks at no WAL."""
        good = [one for one in self._backups() if one.archive == archive and self._fault(one) is None]
        return good[-1] if good else None

    def is_marked(self) -> bool:
        """Whether the folder is there, and is one of backups."""
        return (self.folder / _MARK).is_file()

    def require_marked(self) -> None:
        if not self.is_marked():
            raise NotFound(f"{self.folder} is no folder of backups", hint="`mainspring backup DIR` makes a backup")

    def _backups(self) -> list[Backup]:
        """What can be read, the oldest first."""
        self.require_marked()
        found = []
        for place in self.folder.iterdir():
            if place.name.startswith(".") or not (place / _FACTS).is_file():
                continue
            try:
                found.append(self._read(place))
            except MainspringError as error:
                log.warning("a backup is left out", error=error.detail)
        return sorted(found, key=lambda one: one.started_at)

    def _read(self, place: Path) -> Backup:
        try:
            backup = msgspec.json.decode((place / _FACTS).read_bytes(), type=Backup)
        except (OSError, msgspec.MsgspecError) as error:
            raise damaged(place / _FACTS, str(error)) from error
        if backup.id != place.name:
            raise damaged(place / _FACTS, f"it is of the backup {backup.id}")
        if backup.format > FORMAT:
            raise Conflict(
                f"{place} has the format {backup.format}, and this Mainspring reads {FORMAT}",
                code="backup_version", hint="use the Mainspring that made the backup, or a newer one",
            )  # fmt: skip
        return backup

    def find(self, name: str | None, at: datetime | None = None) -> Backup:
        """The backup with this id; otherwise the newest one, or the newest that had ended at `at`. Raises NotFound."""
        if name is not None:
            self.require_marked()
            if not (self.folder / name / _FACTS).is_file():
                raise NotFound(f"{self.folder} has no backup {name}")
            return self._read(self.folder / name)
        listed = self.listed()
        fitting = [one for one in listed if one.fault is None and (at is None or one.backup.ended_at <= at)]
        if not fitting:
            first = min((one.backup.ended_at for one in listed if one.fault is None), default=None)
            since = "" if first is None else f"; the first one has ended at {first:%Y-%m-%dT%H:%M:%SZ}"
            raise NotFound(f"{self.folder} has no good backup{'' if at is None else ' from before this time'}{since}")
        return fitting[-1].backup

    def _fault(self, backup: Backup) -> str | None:
        """What can be seen without reading the backup. `--verify` reads it."""
        try:
            size = self.base_file(backup).stat().st_size
        except OSError:
            return f"{BASE_NAME} is missing"
        return None if size == backup.stored else f"{BASE_NAME} has {size} bytes instead of {backup.stored}"


def _until(backup: Backup, times: dict[int, float]) -> datetime:
    """When the last segment after the backup was archived, without those behind a gap."""
    number = number_of(backup.last_segment)
    last = None
    while (number := number + 1) in times:
        last = times[number]
    return backup.ended_at if last is None else datetime.fromtimestamp(last, backup.ended_at.tzinfo)


def repository_and_name(path: Path, keys: Keys) -> tuple[Repository, str | None]:
    """`path` is a folder of backups, or one backup in it."""
    path = path.absolute()
    if (path / _FACTS).is_file():
        return Repository(path.parent, keys), path.name
    return Repository(path, keys), None
