"""`mainspring migrate`"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from mainspring.cli.connect import DatabaseUrlOption, JsonFlag, needed_database_url
from mainspring.cli.screen import say, show_json, show_line

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


def command(
    database_url: DatabaseUrlOption = None, stage: StageOption = StageChoice.ALL, as_json: JsonFlag = False
) -> None:
    """Migrate a database to this version's schema. The command is safe to repeat.

    Use --stage pre while servers or schedulers of an older version run. Servers do the same when they start. When the
    last old process has ended, run the command without --stage.
    """
    import uvloop

    from mainspring.store.migrate import Stage, migrate

    stages = tuple(Stage) if stage is StageChoice.ALL else (Stage(stage.value),)
    applied = uvloop.run(migrate(needed_database_url(database_url), stages))
    if as_json:
        show_json({"applied": applied})
        return
    for name in applied:
        show_line(f"applied {name}")
    if not applied:
        say("the database is up to date")
