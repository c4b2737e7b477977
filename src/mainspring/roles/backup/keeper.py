"""Keeps the backups of a running data folder: archives its WAL, makes a backup every so often, and removes old ones.

pg_receivewal writes the WAL into a folder beside the data (`wal-spool`), from a slot that makes PostgreSQL keep what
was not received. Complete segments go into the archive and leave the spool. The one that is being written is archived
again and again. If the folder of backups cannot be written, the spool grows up to a bound, then PostgreSQL keeps the
WAL up to `max_slot_wal_keep_size`. What is lost after that is a gap: a new archive begins, with a backup of its own.
"""

from __future__ import annotations

import subprocess
import threading
import time
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

from mainspring.domain.durations import parse_duration
from mainspring.domain.errors import Conflict, MainspringError, NotFound
from mainspring.kernel.clock import SYSTEM_CLOCK, Clock
from mainspring.kernel.logs import get_logger
from mainspring.kernel.private_files import write_privately
from mainspring.roles.backup.archive_id import archive_of, archives_of, begin_archive, prepare_folder
from mainspring.roles.backup.base_backup import take_backup
from mainspring.roles.backup.repository import Repository
from mainspring.roles.backup.wal import PARTIAL, SEGMENT_BYTES, WalArchive, is_segment
from mainspring.store.embedded import EmbeddedPostgres

log = get_logger("backup")

SLOT = "mainspring_archive"
_SPOOL = "wal-spool"
_LOOK = 0.5  # seconds between looks at the spool
_PARTIAL_EVERY = 30.0  # how old the archived part of the last segment may be
_AGAIN = 5.0  # after a failure
_BACKUP_AGAIN = 60.0
_MOST_SPOOLED = 64  # segments: 1 GB
_SHORTEST, _LONGEST = 60.0, 366 * 86400.0
_GONE = ("has already been removed", "invalidated", "can no longer", "has been lost")


def checked_interval(text: str) -> float:
    """How often to make a backup, in seconds. Raises InvalidInput."""
    return parse_duration(text, "every", least=_SHORTEST, most=_LONGEST)


class Keeper:
    def __init__(
        self, data: Path, repository: Repository, every: float, keep: int, bin_folder: Path | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:  # fmt: skip
        self._data = data
        self._repository = repository
        self._every = every
        self._keep = keep
        self._clock = clock
        self._postgres = EmbeddedPostgres(data, bin_folder=bin_folder)
        self._spool = data / _SPOOL
        self._stop = threading.Event()
        self._receiver: subprocess.Popen[bytes] | None = None
        self._receive_at = 0.0
        self._backup: threading.Thread | None = None
        self._backup_at = 0.0
        self._partial_at = 0.0
        self._partial_seen: tuple[str, int] | None = None
        self._failed = False

    def stop(self) -> None:
        self._stop.set()

    def run(self) -> None:
        """Until `stop` is called."""
        write_privately()
        self.begin()
        try:
            while not self._stop.is_set():
                self.run_once()
                self._stop.wait(_LOOK)
        finally:
            self.finish()

    def begin(self) -> None:
        """Prepare the folders, and go on with the archive of an earlier process."""
        if not (self._postgres.data / "PG_VERSION").exists():
            raise NotFound(f"{self._data} has no embedded PostgreSQL")
        prepare_folder(self._data, self._repository)
        self._spool.mkdir(mode=0o700, exist_ok=True)
        if archive_of(self._data, self._repository) is None:
            self._begin_archive()

    def finish(self) -> None:
        """Archive what was received."""
        self._end_receiver()
        if self._backup is not None:
            self._backup.join()
        self._archive_spool(last=True)

    def run_once(self) -> None:
        self._receive()
        self._archive_spool()
        try:
            self._back_up_if_due()
        except (MainspringError, OSError) as error:
            self._backup_at = self._clock.monotonic() + _BACKUP_AGAIN
            log.error("no backup can be made", error=str(error))

    # -- the WAL

    def _begin_archive(self) -> None:
        """What the spool has belongs to the archive before."""
        for path in self._spool.iterdir():
            path.unlink()
        begin_archive(self._data, self._repository, self._clock.wall())
        self._backup_at = 0.0
        log.info("a new archive of the WAL begins; it needs a backup", folder=str(self._repository.folder))

    def _archive(self) -> WalArchive:
        archive = archive_of(self._data, self._repository)
        assert archive is not None
        return self._repository.archive(archive)

    def _receive(self) -> None:
        """Keep pg_receivewal running, unless the spool is full."""
        full = sum(is_segment(path.name) for path in self._spool.iterdir()) >= _MOST_SPOOLED
        if self._receiver is not None and self._receiver.poll() is None:
            if full:
                log.error("the spool of the WAL is full; PostgreSQL keeps the WAL", segments=_MOST_SPOOLED)
                self._end_receiver()
            return
        now = self._clock.monotonic()
        if full or now < self._receive_at:
            return
        self._receive_at = now + _AGAIN
        if self._receiver is not None:
            self._receiver_ended()
        arguments = ["--dbname", self._postgres.backup_url(), "--slot", SLOT, "--no-password"]
        if not self._run([*arguments, "--create-slot", "--if-not-exists"]):
            return
        with (self._spool / "receivewal.log").open("wb") as said:
            self._receiver = self._postgres.programs.start(
                "pg_receivewal", [*arguments, "--directory", str(self._spool), "--no-loop"], self._postgres.folder,
                stdin=subprocess.DEVNULL, stdout=said, stderr=said,
            )  # fmt: skip

    def _receiver_ended(self) -> None:
        said = (self._spool / "receivewal.log").read_text(errors="replace").strip()
        self._receiver = None
        if any(word in said for word in _GONE):
            log.error("PostgreSQL has not kept the WAL for the archive", said=said)
            self._run(["--dbname", self._postgres.backup_url(), "--slot", SLOT, "--no-password", "--drop-slot"])
            self._begin_archive()
        else:
            log.warning("the archive of the WAL waits for PostgreSQL", said=said)

    def _run(self, arguments: list[str]) -> bool:
        try:
            self._postgres.programs.run("pg_receivewal", arguments, self._postgres.folder)
        except MainspringError as error:
            log.warning("the archive of the WAL waits for PostgreSQL", error=error.detail)
            return False
        return True

    def _end_receiver(self) -> None:
        if self._receiver is not None and self._receiver.poll() is None:
            self._receiver.terminate()
            try:
                self._receiver.wait(_AGAIN)
            except subprocess.TimeoutExpired:
                self._receiver.kill()
                self._receiver.wait()
        self._receiver = None

    def _archive_spool(self, *, last: bool = False) -> None:
        """Move complete segments into the archive. `last`: and the part of the next one, though it is young."""
        try:
            self._repository.require_marked()  # otherwise the disk is gone, and its place is on another one
            archive = self._archive()
            for path in sorted(self._spool.iterdir()):
                if is_segment(path.name) and path.stat().st_size == SEGMENT_BYTES:
                    archive.put(path, path.name)
                    path.unlink()
            self._archive_partial(archive, now=last)
        except (MainspringError, OSError) as error:
            if not self._failed:
                log.error("the WAL cannot be archived", error=str(error))
            self._failed = True
            self._stop.wait(_AGAIN)
        else:
            self._failed = False

    def _archive_partial(self, archive: WalArchive, *, now: bool) -> None:
        monotonic = self._clock.monotonic()
        if not now and monotonic < self._partial_at:
            return
        for path in self._spool.glob(f"*{PARTIAL}"):
            with suppress(FileNotFoundError):
                seen = (path.name, path.stat().st_mtime_ns)
                if seen != self._partial_seen:
                    archive.put(path, path.name)
                    self._partial_seen = seen
        self._partial_at = monotonic + _PARTIAL_EVERY

    # -- backups

    def _back_up_if_due(self) -> None:
        if self._backup is not None and self._backup.is_alive():
            return
        if self._receiver is None or self._clock.monotonic() < self._backup_at:
            return  # a backup is of use with the WAL after it
        archive = archive_of(self._data, self._repository)
        newest = self._repository.newest(archive)
        if newest is not None:
            left = (newest.ended_at + timedelta(seconds=self._every) - self._clock.wall()).total_seconds()
            if left > 0:
                self._backup_at = self._clock.monotonic() + min(left, _BACKUP_AGAIN)
                return
        self._backup_at = self._clock.monotonic() + _BACKUP_AGAIN
        self._backup = threading.Thread(target=self._back_up, args=(archive,), name="backup")
        self._backup.start()

    def _back_up(self, archive: str) -> None:
        began = time.monotonic()
        try:
            with self._repository.alone():
                backup = take_backup(self._postgres, self._repository, self._clock, archive)
                removed = self._repository.prune(self._keep, archives_of(self._data, self._repository))
        except (MainspringError, OSError) as error:
            busy = isinstance(error, Conflict) and error.code == "backup_running"
            (log.info if busy else log.error)("no backup was made", error=str(error))
            return
        log.info(
            "backup made", backup=backup.id, bytes=backup.stored, seconds=round(time.monotonic() - began, 1),
            removed=removed,
        )  # fmt: skip
