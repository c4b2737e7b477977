"""Which archive a data folder writes to. A restored folder has none, so it begins another one."""

from __future__ import annotations

import json
import secrets
from datetime import datetime
from pathlib import Path

from mainspring.domain.errors import Unavailable, not_ours
from mainspring.kernel.ownership import ForeignFile, read_own
from mainspring.roles.backup.repository import Repository
from mainspring.store.embedded.access import replace_file

_FILE = "backup-archive.json"
_MOST = 100


def archive_of(data: Path, repository: Repository) -> str | None:
    """The archive of this data folder in this folder of backups. None if it has none, or if that one has ended."""
    content = read_own(data, _FILE)
    if content is None or json.loads(content).get("ended"):
        return None
    return next(reversed(archives_of(data, repository)), None)


def archives_of(data: Path, repository: Repository) -> list[str]:
    """All archives that this data folder has begun in this folder of backups. It writes to the last one."""
    content = read_own(data, _FILE)
    if content is None:
        return []
    said = json.loads(content)
    return [*said.get("before", ()), said["archive"]] if said["folder"] == str(repository.folder) else []


def prepare_folder(data: Path, repository: Repository) -> None:
    """Make the folder of backups, or check that it is ours. The one that this data folder has used is not made again:
    an empty folder can be the place of a disk that is not mounted."""
    try:
        used = archives_of(data, repository)
    except ForeignFile as error:
        raise not_ours(error) from None
    if used and not repository.is_marked():
        raise Unavailable(
            f"{repository.folder} was a folder of backups and has none now: is it mounted?", code="backup_folder_gone",
            hint=f"mount it, or name another folder; to begin anew in this one, remove {data / _FILE}",
        )  # fmt: skip
    repository.prepare()


def begin_archive(data: Path, repository: Repository, now: datetime) -> str:
    """A new archive. What was archived before is kept until no backup needs it."""
    archive = f"{now:%Y%m%dT%H%M%SZ}-{secrets.token_hex(4)}"
    said = {"archive": archive, "folder": str(repository.folder), "before": archives_of(data, repository)[-_MOST:]}
    replace_file(data / _FILE, json.dumps(said) + "\n")
    return archive


def end_archive(data: Path) -> None:
    """What is written from now on does not continue the archive: another one has to begin."""
    content = read_own(data, _FILE)
    if content is not None:
        replace_file(data / _FILE, json.dumps({**json.loads(content), "ended": True}) + "\n")
