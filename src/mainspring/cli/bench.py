"""`mainspring bench`: how fast this machine is, on the real processes and a fresh PostgreSQL."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from mainspring.cli.connect import JsonFlag


class Part(StrEnum):
    """What can be lost."""

    SCHEDULER = "scheduler"
    WORKER = "worker"
    SERVER = "server"
    POSTGRES = "postgres"


app = typer.Typer(no_args_is_help=True, rich_markup_mode="rich")
JobsOption = Annotated[int | None, typer.Option("--jobs", min=1, help="How many jobs to run.", show_default=False)]
RoundsOption = Annotated[int, typer.Option("--rounds", min=1, help="How often each is lost.")]
OnlyOption = Annotated[list[Part] | None, typer.Option("--only", help="Lose only this; may be given again.")]


@app.command(epilog="Example: mainspring bench throughput --jobs 20000")
def throughput(jobs: JobsOption = None, as_json: JsonFlag = False) -> None:
    """Jobs per second, from submission over HTTP until recorded; 100,000 no-op jobs unless --jobs says otherwise."""
    from mainspring.bench.throughput import main

    raise typer.Exit(main(jobs, as_json))


@app.command(epilog="Example: mainspring bench overhead --json")
def overhead(jobs: JobsOption = None, as_json: JsonFlag = False) -> None:
    """How much longer than the jobs themselves it all takes: 2,000 jobs that sleep for 1 s, on 200 slots."""
    from mainspring.bench.overhead import main

    raise typer.Exit(main(jobs, as_json))


@app.command(epilog="Example: mainspring bench process --json")
def process(jobs: JobsOption = None, as_json: JsonFlag = False) -> None:
    """Jobs per second of a process task: 20,000 no-op jobs, each in a child interpreter, until all are recorded."""
    from mainspring.bench.process_tasks import main

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


@app.command(epilog="Example: mainspring bench submit --json")
def submit(jobs: JobsOption = None, as_json: JsonFlag = False) -> None:
    """How many jobs 16 clients submit one by one, and how long an answer takes; for 10 s, or until --jobs are in."""
    from mainspring.bench.submit import main

    raise typer.Exit(main(jobs, as_json))


@app.command(epilog="Example: mainspring bench schedules --jobs 10000")
def schedules(jobs: JobsOption = None, as_json: JsonFlag = False) -> None:
    """How soon all have fired of 20,000 cron jobs that are due in the same second, among 100,000."""
    from mainspring.bench.schedules import main

    raise typer.Exit(main(jobs, as_json))


@app.command(epilog="Example: mainspring bench failover --rounds 3 --only worker")
def failover(rounds: RoundsOption = 5, only: OnlyOption = None, as_json: JsonFlag = False) -> None:
    """How long until work goes on when a scheduler, a worker, a server or PostgreSQL is lost; the slowest of each."""
    from mainspring.bench.failover import main

    raise typer.Exit(main(rounds, [part.value for part in only or Part], as_json))


@app.command(epilog="Example: mainspring bench output --json")
def output(
    megabytes: Annotated[
        int | None, typer.Option("--mb", min=1, help="How much each run prints.", show_default="100")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """How fast a shell run prints 100 MB into its log, kept whole and with the usual cap, and with how much memory."""
    from mainspring.bench.output import main

    raise typer.Exit(main(megabytes, as_json))


@app.command(epilog="Example: mainspring bench overload --seconds 10 --json")
def overload(
    workers: Annotated[int, typer.Option("--workers", min=1, help="How many workers hold runs.")] = 1000,
    runs: Annotated[int, typer.Option("--runs", min=1, help="How many runs they hold together.")] = 10_000,
    seconds: Annotated[float, typer.Option("--seconds", min=1, help="How long the load lasts.")] = 30.0,
    as_json: JsonFlag = False,
) -> None:
    """What becomes of workers and jobs when a server is offered twice what it can take, and how soon it recovers."""
    from mainspring.bench.overload import main

    raise typer.Exit(main(workers, runs, seconds, as_json))
