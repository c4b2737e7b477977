"""Restore: a backup becomes a new data folder, as it was at its end, at a time, or at the newest that is archived.

Everything happens in a draft beside the new folder, which gets its name as the last step. So a restore that was killed
leaves no data folder, and the next one begins again.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tarfile
import time
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import uvloop

from mainspring.domain.errors import Conflict, InvalidInput, MainspringError, Unavailable
from mainspring.kernel.config import POSTGRES_FOLDER_NAME
from mainspring.kernel.private_files import sync_folder
from mainspring.roles.backup.base_backup import FOLDER_FILES, require_room
from mainspring.roles.backup.fencing import Settled, settle
from mainspring.roles.backup.repository import BASE_NAME, FOLDER_NAME, Backup, Repository
from mainspring.roles.backup.sealed_files import damaged, reading
from mainspring.roles.backup.wal import SEGMENT_BYTES, first_gap, is_segment, number_of, segment_name
from mainspring.roles.database import prepare_database
from mainspring.store import restores
from mainspring.store.database import Database
from mainspring.store.embedded import POLL_SECONDS, EmbeddedPostgres
from mainspring.store.embedded.binaries import binary_major
from mainspring.store.pool import connect
from mainspring.store.restores import Counted

MANIFEST_NAME = "backup_manifest"
_INCOMING = "restoring-wal"
# PostgreSQL asks for a file and waits until it is there, or until it is certain that there is none.
_RESTORE_COMMAND = (
    f": > {_INCOMING}/%f.wanted; until test -e {_INCOMING}/%f || test -e {_INCOMING}/%f.none; "
    f"do kill -0 $PPID && test -d {_INCOMING} || exit 1; sleep 0.02; done; mv {_INCOMING}/%f %p"
)
_TOO_EARLY = "recovery ended before configured recovery target was reached"
_MARGIN = 4 * SEGMENT_BYTES + 256 * 1024 * 1024


class _ManifestFile(msgspec.Struct, rename={"path": "Path", "encoded_path": "Encoded-Path", "checksum": "Checksum",
                                            "algorithm": "Checksum-Algorithm"}):  # fmt: skip
    path: str = ""
    encoded_path: str = ""
    algorithm: str = ""
    checksum: str = ""


class _Manifest(msgspec.Struct, rename={"files": "Files", "checksum": "Manifest-Checksum"}):
    files: list[_ManifestFile]
    checksum: str


@dataclass(frozen=True, slots=True)
class Restored:
    """`settled`: what became of what was under way. None for a check."""

    backup: Backup
    at: datetime | None
    counted: Counted
    settled: Settled | None
    seconds: float


def restore(
    repository: Repository,
    backup: Backup,
    target: Path,
    *,
    at: datetime | None = None,
    bin_folder: Path | None = None,
    check: bool = False,
) -> Restored:
    """Restore into `target`, which must not exist. `check`: only count what there is, and remove it again. Errors say
    which file, key, version or segment is missing."""
    began = time.monotonic()
    target = target.absolute()
    _require_free(target)
    _require_time(backup, at)
    gap = _gap(repository, backup, at)
    draft = target.with_name(f".{target.name}.restoring")
    postgres = EmbeddedPostgres(draft, bin_folder=bin_folder)
    if binary_major(postgres.programs.bin_folder) != backup.postgres:
        raise Conflict(
            f"the backup {backup.id} belongs to PostgreSQL {backup.postgres}, and "
            f"{postgres.programs.bin_folder} has another version",
            code="postgres_major", hint=f"name the programs of PostgreSQL {backup.postgres}: --postgres-bin DIR",
        )  # fmt: skip
    require_room(target.parent, backup.size + _MARGIN, "the backup")
    postgres.lock.acquire()
    try:
        _empty(draft)
        _extract(repository, backup, draft)
        _verify(postgres.data)
        _recover(postgres, repository, backup, at, gap)
        postgres.start()
        try:
            counted, settled = uvloop.run(_opened(Database(postgres.url()), check=check))
        finally:
            postgres.stop()
        if not check:
            sync_folder(draft)
            draft.rename(target)
            sync_folder(target.parent)
        return Restored(backup, at, counted, settled, time.monotonic() - began)
    finally:
        postgres.stop()
        if draft.exists():
            shutil.rmtree(draft, ignore_errors=True)


def _require_free(target: Path) -> None:
    if os.path.lexists(target) and (not target.is_dir() or target.is_symlink() or any(target.iterdir())):
        raise Conflict(
            f"{target} exists: a restore overwrites nothing", code="restore_target_exists", field="data",
            hint="name a new folder",
        )  # fmt: skip


def _require_time(backup: Backup, at: datetime | None) -> None:
    if at is None:
        return
    if backup.archive is None:
        raise InvalidInput(
            f"the backup {backup.id} has no WAL archive, so it is restored as it was at {_text(backup.ended_at)}",
            field="at", hint="leave --at out; `mainspring up --backup DIR` archives the WAL",
        )  # fmt: skip
    if at < backup.ended_at:
        raise InvalidInput(
            f"the backup {backup.id} has ended at {_text(backup.ended_at)}, which is later", field="at",
            hint="choose an earlier backup: name the folder of backups instead of one of them",
        )  # fmt: skip


def _gap(repository: Repository, backup: Backup, at: datetime | None) -> str | None:
    """The first segment that is missing. Without a time that is an error, because the newest state cannot be had."""
    if backup.archive is None:
        return None
    following = segment_name(backup.timeline, number_of(backup.last_segment) + 1)
    archive = repository.archive(backup.archive)
    gap = first_gap(archive.segments(), following)
    if gap is not None and at is None:
        raise _missing(gap, "there are later ones")
    return gap


def _missing(segment: str, because: str) -> Conflict:
    return Conflict(
        f"the segment {segment} of the WAL is missing in the archive, and {because}", code="wal_missing",
        hint="restore an earlier moment with --at, or a later backup",
    )  # fmt: skip


def _empty(draft: Path) -> None:
    """Remove what a killed restore has left."""
    for path in draft.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        elif path.name != "lock":
            path.unlink()


def _extract(repository: Repository, backup: Backup, draft: Path) -> None:
    data = draft / POSTGRES_FOLDER_NAME
    data.mkdir(mode=0o700)
    base = repository.base_file(backup)
    try:
        with reading(base, repository.keys, f"{backup.id}/{BASE_NAME}") as file:
            with tarfile.open(fileobj=file, mode="r|", bufsize=1024 * 1024) as packed:
                packed.extractall(data, filter="data")
            while file.read(1024 * 1024):  # to its end, where a file that is cut off shows
                pass
        files = repository.folder_file(backup)
        if files.exists():
            with reading(files, repository.keys, f"{backup.id}/{FOLDER_NAME}") as file:
                _write_folder_files(draft, json.loads(file.read()))
    except tarfile.TarError as error:
        raise damaged(base, str(error)) from error
    except OSError as error:
        if error.filename is None and error.errno is None:
            raise damaged(base, str(error)) from error
        raise Unavailable(f"the backup could not be read or written: {error}", code="restore_failed") from error
    for place, folders, _ in os.walk(data):
        for name in folders:
            (Path(place) / name).chmod(0o700)


def _write_folder_files(draft: Path, texts: dict[str, str]) -> None:
    for name in FOLDER_FILES:
        if name in texts:
            with os.fdopen(os.open(draft / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
                file.write(texts[name])
                file.flush()
                os.fsync(file.fileno())


def _verify(data: Path) -> None:
    """Compare each file with the manifest that PostgreSQL has made with the backup."""
    manifest = data / MANIFEST_NAME
    try:
        text = manifest.read_bytes()
        found = msgspec.json.decode(text, type=_Manifest)
    except (OSError, msgspec.MsgspecError) as error:
        raise damaged(manifest, str(error)) from error
    if hashlib.sha256(text[: text.rindex(b'"Manifest-Checksum"')]).hexdigest() != found.checksum:
        raise damaged(manifest, "it does not have its checksum")
    for each in found.files:
        name = os.fsdecode(bytes.fromhex(each.encoded_path)) if each.encoded_path else each.path
        path = data / name
        try:
            with path.open("rb") as file:
                checksum = hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            raise damaged(path, str(error)) from error
        if each.algorithm != "SHA256" or checksum != each.checksum:
            raise damaged(path, "it does not have the checksum of the manifest")
    for left_behind in data.glob(".s.PGSQL.*"):  # of the server that was copied
        left_behind.unlink()


def _recover(
    postgres: EmbeddedPostgres, repository: Repository, backup: Backup, at: datetime | None, gap: str | None
) -> None:
    """Apply the WAL up to the time, and begin a new timeline."""
    incoming = postgres.data / _INCOMING
    incoming.mkdir(mode=0o700)
    (postgres.data / "recovery.signal").touch(mode=0o600)
    settings = {
        "restore_command": "false" if backup.archive is None else _RESTORE_COMMAND,
        "recovery_target_timeline": "current",
        "recovery_target_action": "promote",
        "hot_standby": "off",
        "summarize_wal": "off",
    }
    if at is not None:
        settings["recovery_target_time"] = at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S.%f+00")
    if backup.postgres < 17:
        del settings["summarize_wal"]
    feed = _Feed(repository, backup, incoming, gap)
    try:
        with closing(postgres.recovering(settings)) as steps:
            try:
                for _ in steps:
                    feed.give()
                    time.sleep(POLL_SECONDS / 4)
            except BaseException:
                shutil.rmtree(incoming, ignore_errors=True)  # PostgreSQL waits no longer
                raise
    except MainspringError as error:
        if _TOO_EARLY not in error.detail or at is None:
            raise
        if gap is not None:
            raise _missing(gap, f"the time {_text(at)} is behind it") from None
        raise InvalidInput(
            f"the archive has nothing from {_text(at)} or later", field="at",
            hint="leave --at out to get the newest that is archived",
        ) from None  # fmt: skip
    shutil.rmtree(incoming)
    for name in ("recovery.signal", MANIFEST_NAME):
        (postgres.data / name).unlink(missing_ok=True)


class _Feed:
    """Gives PostgreSQL the segments that it asks for, and has the next one ready."""

    def __init__(self, repository: Repository, backup: Backup, incoming: Path, gap: str | None) -> None:
        self._archive = None if backup.archive is None else repository.archive(backup.archive)
        self._incoming = incoming
        self._gap = gap
        segments = () if self._archive is None else self._archive.segments()
        end = max(map(number_of, segments), default=0) + 1 if gap is None else number_of(gap)
        self._promised = range(number_of(backup.last_segment) + 1, end)

    def give(self) -> None:
        for asked in sorted(self._incoming.glob("*.wanted")):
            name = asked.name.removesuffix(".wanted")
            if not self._have(name):
                if is_segment(name) and number_of(name) in self._promised:
                    raise _missing(name, "it was there when the restore began")
                (self._incoming / f"{name}.none").touch()
            asked.unlink(missing_ok=True)
            if is_segment(name):
                self._have(segment_name(int(name[:8], 16), number_of(name) + 1))

    def _have(self, name: str) -> bool:
        target = self._incoming / name
        if target.exists():
            return True
        if self._archive is None or not is_segment(name):
            return False
        if self._gap is not None and number_of(name) >= number_of(self._gap):
            return False
        draft = self._incoming / f"{name}.draft"
        if not self._archive.get(name, draft):
            return False
        owner = self._incoming.stat()
        if owner.st_uid != os.geteuid():
            os.chown(draft, owner.st_uid, owner.st_gid)
        draft.rename(target)  # from now on PostgreSQL can take it
        return True


async def _opened(database: Database, *, check: bool) -> tuple[Counted, Settled | None]:
    """Count, and settle what was under way, with the tables of this version."""
    connection = await connect(database, application="restore")
    try:
        counted = await restores.counted(connection)
    finally:
        await connection.close()
    if check:
        return counted, None
    await prepare_database(database)
    return counted, await settle(database)


def _text(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"
