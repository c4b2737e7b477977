"""`mainspring bench`: how fast this machine is, on the real processes and a fresh PostgreSQL."""

from __future__ import annotations

from typing import Annotated

import typer

from mainspring.cli.connect import JsonFlag

app = typer.Typer(no_args_is_help=True, rich_markup_mode="rich")
JobsOption = Annotated[int | None, typer.Option("--jobs", min=1, help="How many jobs to run.", show_default=False)]


@app.command(epilog="Example: mainspring bench throughput --jobs 20000")
def throughput(jobs: JobsOption = None, as_json: JsonFlag = False) -> None:
    """Jobs per second, from submission over HTTP until recorded; 100,000 no-op jobs unless --jobs says otherwise."""
    from mainspring.bench.throughput import main

    raise typer.Exit(main(jobs, as_json))


@app.command(epilog="Example: mainspring bench lag --json")
def lag(jobs: JobsOption = None, as_json: JsonFlag = False) -> None:
    """How late jobs start that are due at a time: 1,000 distinct times over 20 s."""
    from mainspring.bench.lag import main

    raise typer.Exit(main(jobs, as_json))


@app.command(epilog="Example: mainspring bench pickup")
def pickup(jobs: JobsOption = None, as_json: JsonFlag = False) -> None:
    """How soon an immediate job starts on an idle system: 300 of them, one at a time."""
    from mainspring.bench.pickup import main

    raise typer.Exit(main(jobs, as_json))
