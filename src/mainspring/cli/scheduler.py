"""`mainspring scheduler`"""

from __future__ import annotations

import typer

from mainspring.cli.connect import (
    LogFormatOption,
    LogLevelOption,
    checked_log_format,
    checked_log_level,
    needed_database,
)
from mainspring.store.database import Database

EXAMPLES = ("mainspring scheduler --database-url-file database-url",)


def command(
    database: Database | None = None, log_level: LogLevelOption = "info", log_format: LogFormatOption = "auto"
) -> None:
    """Fire due jobs without serving the API. Several schedulers share the work. If one dies, others take over."""
    import uvloop

    from mainspring.roles.scheduler import SchedulerOptions, run_scheduler

    options = SchedulerOptions(
        database=needed_database(database),
        log_level=checked_log_level(log_level),
        log_format=checked_log_format(log_format),
    )
    raise typer.Exit(uvloop.run(run_scheduler(options)))
