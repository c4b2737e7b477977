"""A base backup: all of the data at one moment, and the WAL that was written meanwhile."""

from __future__ import annotations

import os
import re
import secrets
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from mainspring.domain.errors import Unavailable
from mainspring.kernel.clock import Clock
from mainspring.kernel.config import MASTER_KEY_FILE_NAME, TOKEN_FILE_NAME, WORKER_TOKEN_FILE_NAME
from mainspring.kernel.ownership import read_own
from mainspring.kernel.version import VERSION
from mainspring.roles.backup.repository import BASE_NAME, FOLDER_NAME, Backup, Repository
from mainspring.roles.backup.sealed_files import CHUNK, writing
from mainspring.store.embedded import EmbeddedPostgres

# What a data folder has beside the database. It goes into encrypted backups only: the master key decrypts the secrets.
FOLDER_FILES = (MASTER_KEY_FILE_NAME, TOKEN_FILE_NAME, WORKER_TOKEN_FILE_NAME)
_START = re.compile(r"log start point: ([0-9A-F]+/[0-9A-F]+) on timeline (\d+)")
_END = re.compile(r"log end point: ([0-9A-F]+/[0-9A-F]+)")


def take_backup(postgres: EmbeddedPostgres, repository: Repository, clock: Clock, archive: str | None = None) -> Backup:
    """Copy the data of a running PostgreSQL. `archive`: which archive has the WAL from now on. The caller holds
    `repository.alone()`."""
    started = clock.wall()
    backup_id = repository.new_id(started)
    with repository.draft(backup_id) as draft:
        place = f"{backup_id}/{BASE_NAME}"
        with writing(draft / BASE_NAME, repository.keys, place) as (file, written), _kept_wal(postgres):
            said, size = _copy(postgres, file)
        if repository.keys.current is not None:
            found = {name: read_own(postgres.folder, name) for name in FOLDER_FILES}
            texts = {name: content.decode() for name, content in found.items() if content is not None}
            with writing(draft / FOLDER_NAME, repository.keys, f"{backup_id}/{FOLDER_NAME}") as (file, _):
                file.write(msgspec.json.encode(texts))
        start, end = _START.search(said), _END.search(said)
        if start is None or end is None:
            raise Unavailable(f"pg_basebackup did not say which WAL the backup needs: {said}", code="backup_failed")
        backup = Backup(
            id=backup_id, started_at=started, ended_at=clock.wall(), mainspring=VERSION,
            postgres=int((postgres.data / "PG_VERSION").read_text(encoding="ascii")), timeline=int(start[2]),
            start_lsn=start[1], end_lsn=end[1], size=size, stored=written.size, sha256=written.sha256,
            archive=archive, key=repository.keys.current,
        )  # fmt: skip
        repository.publish(draft, backup)
    return backup


def _copy(postgres: EmbeddedPostgres, file: object) -> tuple[str, int]:
    """Copy the data as a tar archive. Returns what pg_basebackup said, and the size."""
    arguments = ["--dbname", postgres.backup_url(), "--pgdata=-", "--format=tar", "--wal-method=fetch"]
    arguments += [
        "--checkpoint=fast",
        "--label=mainspring",
        "--manifest-checksums=SHA256",
        "--no-password",
        "--verbose",
    ]
    size = 0
    with tempfile.TemporaryFile() as said:
        process = postgres.programs.start(
            "pg_basebackup", arguments, postgres.folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=said
        )
        try:
            assert process.stdout is not None
            while data := process.stdout.read(CHUNK):
                file.write(data)  # type: ignore[attr-defined]
                size += len(data)
            code = process.wait()
        finally:
            _end(process)
        said.seek(0)
        text = said.read().decode("utf-8", "replace").strip()
    if code != 0:
        raise Unavailable(f"pg_basebackup failed: {text}", code="backup_failed")
    return text, size


@contextmanager
def _kept_wal(postgres: EmbeddedPostgres) -> Iterator[None]:
    """PostgreSQL keeps the WAL from now on until the block ends, by a slot that ends with its session."""
    slot = f"backup_{os.getpid()}_{secrets.token_hex(4)}"
    arguments = ["-XAtq", "-v", "ON_ERROR_STOP=1", "-d", f"{postgres.backup_url()}&replication=true", "-w"]
    process = postgres.programs.start(
        "psql", arguments, postgres.folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    try:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(f"CREATE_REPLICATION_SLOT {slot} TEMPORARY PHYSICAL RESERVE_WAL;\n\\echo kept\n".encode())
        process.stdin.flush()
        while line := process.stdout.readline():
            if line.strip() == b"kept":
                break
        else:
            _, said = process.communicate()
            raise Unavailable(
                f"PostgreSQL does not keep its WAL for a backup: {said.decode('utf-8', 'replace').strip()}",
                code="backup_failed",
            )
        yield
    finally:
        _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a program that may still run."""
    if process.poll() is None:
        process.kill()
    process.wait()
    for stream in (process.stdin, process.stdout, process.stderr):
        if stream is not None:
            stream.close()


def room_of(path: Path) -> int:
    """How many bytes are free where this folder is, or will be."""
    while not path.exists():
        path = path.parent
    found = os.statvfs(path)
    return found.f_bavail * found.f_frsize


def require_room(folder: Path, needed: int, what: str) -> None:
    """Raises Unavailable if fewer bytes are free where this folder is, or will be."""
    free = room_of(folder)
    if free < needed:
        raise Unavailable(
            f"{folder} has {free // 1024**2} MB free, and {what} needs {needed // 1024**2} MB", code="no_room"
        )
