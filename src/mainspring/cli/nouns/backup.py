"""`mainspring backup`"""

from __future__ import annotations

import signal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mainspring.cli.backup_options import (
    BackupDataOption,
    BackupsArgument,
    EveryOption,
    KeepOption,
    KeyFileOption,
    PostgresBinOption,
    data_folder,
    settled_text,
)
from mainspring.cli.connect import (
    JsonFlag,
    LogFormatOption,
    LogLevelOption,
    checked_log_format,
    checked_log_level,
    needed_database,
)
from mainspring.cli.noun import Noun
from mainspring.cli.screen import say, show_fields, show_json, show_rows
from mainspring.cli.table import Column
from mainspring.store.database import Database

if TYPE_CHECKING:
    from mainspring.roles.backup.repository import Backup, Listed, Repository

noun = Noun("backup", "Backups of the embedded PostgreSQL.", default="create")
_COLUMNS = (
    Column("BACKUP", least=12),
    Column("ENDED", rank=1),
    Column("RESTORABLE UNTIL", rank=2),
    Column("SIZE", rank=4, right=True),
    Column("KEY", rank=5),
    Column("STATE", rank=3),
)


def _repository(folder: Path, key_file: Path | None) -> tuple[Repository, str | None]:
    from mainspring.roles.backup.repository import repository_and_name
    from mainspring.roles.backup.sealed_files import Keys

    return repository_and_name(folder, Keys.of_file(key_file))


@noun.verb("create", "mainspring backup /mnt/backups", "mainspring backup create /mnt/backups --verify")
def create(
    backups: BackupsArgument,
    data: BackupDataOption = None,
    key_file: KeyFileOption = None,
    verify: Annotated[
        bool, typer.Option("--verify", help="Restore it into a scratch folder afterwards, and count what it has.")
    ] = False,
    postgres_bin: PostgresBinOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Back up the embedded PostgreSQL of a data folder, whether Mainspring runs on it or not.

    `mainspring up --backup DIR` does this by itself, and archives the WAL as well, so that any moment can be restored.
    """
    from mainspring.kernel.logs import configure_logs
    from mainspring.roles.backup.commands import back_up

    configure_logs(role="backup")
    repository, _ = _repository(backups, key_file)
    backup = back_up(data_folder(data), repository, bin_folder=postgres_bin)
    if verify:
        _verified(repository, backup, postgres_bin, as_json=as_json)
    elif as_json:
        show_json(backup)
    else:
        _show(backup)


@noun.verb("list", "mainspring backup list /mnt/backups")
def list_(backups: BackupsArgument, as_json: JsonFlag = False) -> None:
    """List the backups of a folder, and until when each can be restored."""
    from mainspring.kernel.logs import configure_logs

    configure_logs(role="backup")
    listed = _repository(backups, None)[0].listed()
    if as_json:
        show_json({"backups": listed})
        return
    show_rows(_COLUMNS, [_row(one) for one in listed], nothing="no backups", full_ids=True)


@noun.verb("verify", "mainspring backup verify /mnt/backups")
def verify(
    backups: BackupsArgument,
    key_file: KeyFileOption = None,
    postgres_bin: PostgresBinOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Restore a backup, or the newest one of a folder, into a scratch folder and count what it has."""
    from mainspring.kernel.logs import configure_logs

    configure_logs(role="backup")
    repository, name = _repository(backups, key_file)
    _verified(repository, repository.find(name), postgres_bin, as_json=as_json)


@noun.verb("keep", "mainspring backup keep /mnt/backups --every 1d --keep 7")
def keep(
    backups: BackupsArgument,
    data: BackupDataOption = None,
    key_file: KeyFileOption = None,
    every: EveryOption = "1d",
    keep: KeepOption = 7,
    postgres_bin: PostgresBinOption = None,
    log_level: LogLevelOption = "info",
    log_format: LogFormatOption = "auto",
) -> None:
    """Archive the WAL and make backups until it is stopped. `mainspring up --backup DIR` runs this."""
    from mainspring.kernel.logs import configure_logs
    from mainspring.roles.backup.keeper import Keeper, checked_interval
    from mainspring.roles.backup.repository import Repository
    from mainspring.roles.backup.sealed_files import Keys

    configure_logs(role="backup", log_format=checked_log_format(log_format), level=checked_log_level(log_level))
    repository = Repository(backups, Keys.of_file(key_file))
    keeper = Keeper(data_folder(data), repository, checked_interval(every), keep, postgres_bin)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: keeper.stop())
    keeper.run()


@noun.verb("settle", "mainspring backup settle --database-url-file database-url")
def settle(database: Database | None = None, as_json: JsonFlag = False) -> None:
    """Settle your own PostgreSQL that other tools have restored, before the first server starts.

    Workers of the time before can report nothing into it, and jobs that are at most once are not repeated; steps of
    workflows can be. `mainspring restore` does this by itself.
    """
    import uvloop

    from mainspring.kernel.logs import configure_logs
    from mainspring.roles.backup.commands import settle_own

    configure_logs(role="restore")
    settled = uvloop.run(settle_own(needed_database(database)))
    if as_json:
        show_json(settled)
    else:
        say(settled_text(settled))


def _verified(repository: Repository, backup: Backup, postgres_bin: Path | None, *, as_json: bool) -> None:
    from mainspring.roles.backup.commands import verify

    restored = verify(repository, backup, bin_folder=postgres_bin)
    if as_json:
        show_json({"backup": backup, "verified": restored.counted, "seconds": round(restored.seconds, 3)})
        return
    _show(backup)
    counted = restored.counted
    say(
        f"verified in {restored.seconds:.1f} s: {counted.jobs} jobs, {counted.live_runs} live runs and "
        f"{counted.ended_runs} ended runs"
    )


def _show(backup: Backup) -> None:
    from mainspring.cli.text_formats import local
    from mainspring.domain.sizes import format_size

    show_fields(
        [
            ("backup", backup.id),
            ("ended", local(backup.ended_at)),
            ("size", f"{format_size(backup.stored)} of {format_size(backup.size)}"),
            ("key", backup.key),
            ("archive", backup.archive),
        ]
    )


def _row(one: Listed) -> tuple[str, ...]:
    from mainspring.cli.text_formats import local
    from mainspring.domain.sizes import format_size

    backup = one.backup
    until = local(one.until or backup.ended_at)
    size = format_size(backup.stored)
    return backup.id, local(backup.ended_at), until, size, backup.key or "-", one.fault or "complete"
