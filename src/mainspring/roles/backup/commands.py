"""What `mainspring backup` does with a data folder, whether Mainspring runs on it or not."""

from __future__ import annotations

import tempfile
from contextlib import nullcontext
from pathlib import Path

from mainspring.domain.errors import Conflict, NotFound
from mainspring.kernel.clock import SYSTEM_CLOCK, Clock
from mainspring.kernel.private_files import write_privately
from mainspring.roles.backup.archive_id import archive_of, prepare_folder
from mainspring.roles.backup.base_backup import take_backup
from mainspring.roles.backup.fencing import Settled, settle
from mainspring.roles.backup.repository import Backup, Repository
from mainspring.roles.backup.restore import Restored, restore
from mainspring.roles.database import prepare_database, when_available
from mainspring.store.database import Database
from mainspring.store.embedded import EmbeddedPostgres


def back_up(
    data: Path, repository: Repository, *, bin_folder: Path | None = None, clock: Clock = SYSTEM_CLOCK
) -> Backup:
    """Back up the database of a data folder. If no Mainspring runs on it, its PostgreSQL is started for it."""
    write_privately()
    postgres = EmbeddedPostgres(data, bin_folder=bin_folder)
    if not (postgres.data / "PG_VERSION").exists():
        raise NotFound(
            f"{data} has no embedded PostgreSQL",
            hint="name the data folder with --data; docs/backup.md says how to back up your own PostgreSQL",
        )  # fmt: skip
    prepare_folder(data, repository)
    with repository.alone():
        try:
            postgres.lock.acquire()
        except Conflict as error:
            if error.code != "already_running":
                raise
            running = True
        else:
            running = False
        with nullcontext() if running else postgres:
            return take_backup(postgres, repository, clock, archive_of(data, repository))


async def settle_own(database: Database) -> Settled:
    """After a restore of one's own PostgreSQL by other tools, before the first server starts."""

    async def prepared() -> Settled:
        await prepare_database(database)
        return await settle(database, alone=False)

    return await when_available(database, prepared)


def verify(repository: Repository, backup: Backup, *, bin_folder: Path | None = None) -> Restored:
    """Restore into a scratch folder, count, and remove it."""
    write_privately()
    with tempfile.TemporaryDirectory(prefix="mainspring-verify-") as scratch:
        return restore(repository, backup, Path(scratch) / "data", bin_folder=bin_folder, check=True)
