"""`mainspring migrate`"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from mainspring.cli.connect import JsonFlag, needed_database
from mainspring.cli.screen import say, show_json, show_line
from mainspring.store.database import Database

if TYPE_CHECKING:
    from mainspring.store.migrate import Stage

EXAMPLES = (
    "mainspring migrate --database-url-file database-url",
    "mainspring migrate --stage pre",
)


class StageChoice(StrEnum):
    PRE = "pre"
    POST = "post"
    ALL = "all"


StageOption = Annotated[
    StageChoice,
    typer.Option(
        "--stage",
        help="pre: migrations that older processes tolerate. post: those that need all older processes to have ended. "
        "all: both.",
    ),
]


ForceOption = Annotated[
    bool, typer.Option("--force", help="Apply all migrations, also while older servers or schedulers run.")
]


def command(
    database: Database | None = None,
    stage: StageOption = StageChoice.ALL,
    force: ForceOption = False,
    as_json: JsonFlag = False,
) -> None:
    """Migrate a database to this version's schema. The command is safe to repeat.

    Use --stage pre while servers or schedulers of an older version run. Servers do the same when they start. When the
    last old process has ended, run the command without --stage. It refuses what older processes that run do not
    tolerate, unless --force is given.
    """
    import uvloop

    from mainspring.kernel.logs import configure_logs
    from mainspring.store.migrate import Stage

    configure_logs(role="migrate")
    stages = tuple(Stage) if stage is StageChoice.ALL else (Stage(stage.value),)
    applied = uvloop.run(_migrated(needed_database(database), stages, force=force))
    if as_json:
        show_json({"applied": applied})
        return
    for name in applied:
        show_line(f"applied {name}")
    if not applied:
        say("the database is up to date")


async def _migrated(database: Database, stages: tuple[Stage, ...], *, force: bool) -> list[str]:
    from mainspring.roles.database import when_available
    from mainspring.store.database_errors import database_in_words
    from mainspring.store.grants import require_owner
    from mainspring.store.migrate import migrate
    from mainspring.store.pool import connect
    from mainspring.store.preflight import check_database

    async def apply() -> list[str]:
        await check_database(database)
        with database_in_words(database.direct):
            connection = await connect(database.direct, application="start")
            try:
                await require_owner(connection, database.direct)
            finally:
                await connection.close()
            return await migrate(database, stages, force=force)

    return await when_available(database, apply)
