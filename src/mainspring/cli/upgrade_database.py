"""`mainspring upgrade-database`"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mainspring.cli.backup_options import BackupDataOption, PostgresBinOption, data_folder
from mainspring.cli.connect import JsonFlag
from mainspring.cli.screen import say, show_json

EXAMPLES = ("mainspring upgrade-database", "mainspring upgrade-database --data .mainspring")


def command(
    data: BackupDataOption = None,
    postgres_bin: PostgresBinOption = None,
    old_postgres_bin: Annotated[
        Path | None,
        typer.Option(
            "--old-postgres-bin", metavar="DIR", show_default=False,
            help="The programs of the version that the data has. Default: those of the wheel, which has 16 and 18.",
        ),
    ] = None,
    as_json: JsonFlag = False,
) -> None:  # fmt: skip
    """Convert the data of the embedded PostgreSQL to the version of its programs, by pg_upgrade.

    Mainspring must not run. The old data is kept beside the new one. A command that was killed can be repeated.
    """
    from mainspring.kernel.logs import configure_logs
    from mainspring.roles.backup.upgrade import upgrade_database

    configure_logs(role="upgrade")
    folder = data_folder(data)
    done = upgrade_database(folder, old_bin=old_postgres_bin, new_bin=postgres_bin)
    if as_json:
        show_json({"before": done.before, "now": done.now, "kept": done.kept, "seconds": round(done.seconds, 3)})
    elif done.kept is None:
        say(f"{folder} belongs to PostgreSQL {done.now} already")
    else:
        say(f"converted from PostgreSQL {done.before} to {done.now} in {done.seconds:.1f} s")
        say(f"the old data is in {done.kept}: remove it when you are sure, and not before the next backup")
        say(f"start it: mainspring up --data {folder}")
