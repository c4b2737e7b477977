"""`mainspring restore`"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mainspring.cli.backup_options import KeyFileOption, PostgresBinOption, settled_text
from mainspring.cli.connect import JsonFlag
from mainspring.cli.screen import say, show_json

EXAMPLES = (
    "mainspring restore /mnt/backups --data restored",
    "mainspring restore /mnt/backups --data restored --at 2026-11-18T20:15:00Z",
)


def command(
    backup: Annotated[
        Path, typer.Argument(metavar="BACKUP", help="A backup, or a folder of backups: its newest one that fits.")
    ],
    data: Annotated[Path, typer.Option("--data", metavar="DIR", help="The new data folder. It must not exist.")],
    at: Annotated[
        str | None,
        typer.Option(
            "--at", metavar="TIME", help="Restore what was there at this time. Default: the newest there is.",
            show_default=False,
        ),
    ] = None,
    key_file: KeyFileOption = None,
    postgres_bin: PostgresBinOption = None,
    as_json: JsonFlag = False,
) -> None:  # fmt: skip
    """Restore a backup into a new data folder, for `mainspring up --data DIR`.

    Workers of the time before can report nothing into it. Runs that are at most once and may have begun since the
    backup are ended with a reason. Fires since then follow the misfire policy of their jobs.
    """
    from mainspring.domain.intake.times import parse_time
    from mainspring.kernel.logs import configure_logs
    from mainspring.kernel.private_files import write_privately
    from mainspring.roles.backup.repository import repository_and_name
    from mainspring.roles.backup.restore import restore
    from mainspring.roles.backup.sealed_files import Keys

    configure_logs(role="restore")
    write_privately()
    moment = None if at is None else parse_time(at, "at")
    repository, name = repository_and_name(backup, Keys.of_file(key_file))
    done = restore(repository, repository.find(name, moment), data, at=moment, bin_folder=postgres_bin)
    if as_json:
        show_json(
            {
                "backup": done.backup, "at": done.at, "data": str(data.absolute()), "counted": done.counted,
                "settled": done.settled, "seconds": round(done.seconds, 3),
            }
        )  # fmt: skip
        return
    counted, settled = done.counted, done.settled
    say(f"restored {done.backup.id} into {data} in {done.seconds:.1f} s")
    say(f"it has {counted.jobs} jobs, {counted.live_runs} live runs and {counted.ended_runs} ended runs")
    if settled is not None:
        say(settled_text(settled))
    say(f"start it: mainspring up --data {data}")
