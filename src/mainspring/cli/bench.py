"""`mainspring bench`: measures this machine with real processes and a fresh PostgreSQL."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from mainspring.cli.connect import JsonFlag
from mainspring.cli.extras import require_extra
from mainspring.cli.groups import CommandGroup
from mainspring.store.database import Pooling


class BenchPart(StrEnum):
    """A part of the system that the failover benchmark stops."""

    SCHEDULER = "scheduler"
    WORKER = "worker"
    MACHINE = "machine"
    SERVER = "server"
    POSTGRES = "postgres"


app = typer.Typer(cls=CommandGroup, rich_markup_mode="rich")


@app.callback()
def _with_a_server() -> None:
    """Measure the performance of this machine."""
    require_extra("bench")


JobsOption = Annotated[int | None, typer.Option("--jobs", min=1, help="How many jobs to run.", show_default=False)]
BenchPoolingOption = Annotated[
    Pooling, typer.Option("--pgbouncer", help="Put a PgBouncer with this pool_mode before PostgreSQL.")
]
RoundsOption = Annotated[int, typer.Option("--rounds", min=1, help="How many times each part is stopped.")]
ServersOption = Annotated[int, typer.Option("--servers", min=1, help="How many servers share workers and load.")]
OnlyOption = Annotated[list[BenchPart] | None, typer.Option("--only", help="Stop only this part. Can be repeated.")]


@app.command(epilog="Example: mainspring bench guarded --rounds 7")
def guarded(
    jobs: JobsOption = None,
    rounds: Annotated[int, typer.Option("--rounds", min=1, help="How many times both are measured, in turn.")] = 5,
    as_json: JsonFlag = False,
) -> None:
    """Measure what access control costs: jobs per second with narrowed tokens, all quotas and the audit, in turn with
    none of them. Default: 50,000 no-op jobs in each of 5 rounds."""
    from mainspring.bench.guarded import main

    raise typer.Exit(main(jobs, rounds, as_json))


@app.command(epilog="Example: mainspring bench throughput --jobs 20000")
def throughput(
    jobs: JobsOption = None, pgbouncer: BenchPoolingOption = Pooling.NONE, as_json: JsonFlag = False
) -> None:
    """Measure jobs per second: from submission over HTTP to the recorded outcome with the payload. Default: 100,000
    no-op jobs, once with payloads of about 200 bytes and once with 1 KiB."""
    from mainspring.bench.throughput import main

    raise typer.Exit(main(jobs, as_json, pgbouncer))


@app.command(epilog="Example: mainspring bench limits --jobs 20000")
def limits(jobs: JobsOption = None, as_json: JsonFlag = False) -> None:
    """Measure jobs per second under limits of concurrency: 1,000 keys with a limit of 1, and one key with a limit of
    50, beside the same jobs without limits. Default: 100,000 no-op jobs."""
    from mainspring.bench.limits import main

    raise typer.Exit(main(jobs, as_json))


@app.command(epilog="Example: mainspring bench sinks --jobs 20000")
def sinks(jobs: JobsOption = None, as_json: JsonFlag = False) -> None:
    """Measure what one sink costs: jobs per second without a sink, with one that gets the ends of runs, and with one
    that gets all changes. Default: 50,000 no-op jobs each."""
    from mainspring.bench.sinks import main

    raise typer.Exit(main(jobs, as_json))


@app.command(epilog="Example: mainspring bench overhead --json")
def overhead(jobs: JobsOption = None, as_json: JsonFlag = False) -> None:
    """Measure the overhead on top of the jobs' own time. Default: 2,000 jobs that sleep for 1 s, on 200 slots."""
    from mainspring.bench.overhead import main

    raise typer.Exit(main(jobs, as_json))


@app.command(epilog="Example: mainspring bench process --json")
def process(jobs: JobsOption = None, as_json: JsonFlag = False) -> None:
    """Measure jobs per second of a process task: it runs in a child interpreter. Default: 20,000 no-op jobs."""
    from mainspring.bench.process_tasks import main

    raise typer.Exit(main(jobs, as_json))


@app.command(epilog="Example: mainspring bench lag --json")
def lag(jobs: JobsOption = None, as_json: JsonFlag = False) -> None:
    """Measure how late jobs start after their scheduled time. Default: 1,000 different times within 20 s."""
    from mainspring.bench.lag import main

    raise typer.Exit(main(jobs, as_json))


@app.command(epilog="Example: mainspring bench pickup")
def pickup(jobs: JobsOption = None, as_json: JsonFlag = False) -> None:
    """Measure how soon an immediate job starts on an idle system. Default: 300 jobs, one at a time."""
    from mainspring.bench.pickup import main

    raise typer.Exit(main(jobs, as_json))


@app.command(epilog="Example: mainspring bench submit --json")
def submit(jobs: JobsOption = None, as_json: JsonFlag = False) -> None:
    """Measure how many jobs 16 clients submit one by one: the rate, and the response times. Default: for 10 s."""
    from mainspring.bench.submit import main

    raise typer.Exit(main(jobs, as_json))


@app.command(epilog="Example: mainspring bench events --events 20000 --rate 3000")
def events(
    events: Annotated[int, typer.Option("--events", min=1, help="How many events are emitted.")] = 50_000,
    rate: Annotated[int, typer.Option("--rate", min=1, help="How many a second.")] = 5000,
    as_json: JsonFlag = False,
) -> None:
    """Measure events: how many are taken per second in batches of 100, how many runs they start, and how soon. Default:
    50,000 events, 5,000 a second, each of which starts a run."""
    from mainspring.bench.events import main

    raise typer.Exit(main(events, rate, as_json))


@app.command(epilog="Example: mainspring bench schedules --jobs 10000")
def schedules(jobs: JobsOption = None, as_json: JsonFlag = False) -> None:
    """Measure how soon 20,000 cron jobs fire that are due at once: in the same second, among 100,000 jobs."""
    from mainspring.bench.schedules import main

    raise typer.Exit(main(jobs, as_json))


@app.command(epilog="Example: mainspring bench storm --jobs 100000 --due 10000 --critical 100")
def storm(
    jobs: Annotated[int, typer.Option("--jobs", min=1, help="How many cron jobs to register.")] = 1_000_000,
    due: Annotated[int, typer.Option("--due", min=1, help="How many of them are due in the same second.")] = 100_000,
    critical: Annotated[int, typer.Option("--critical", min=0, help="How many of those are critical.")] = 1000,
    as_json: JsonFlag = False,
) -> None:
    """Measure how late jobs start if many are due at once: when critical ones start, and when all have fired. Takes
    minutes: it registers a million jobs first."""
    from mainspring.bench.storm import StormSizes, main

    if due > jobs:
        raise typer.BadParameter(f"{due} jobs cannot be due if only {jobs} are registered", param_hint="--due")
    if critical > due:
        raise typer.BadParameter(f"{critical} jobs cannot be critical if only {due} are due", param_hint="--critical")
    raise typer.Exit(main(StormSizes(jobs, due, critical), as_json))


@app.command(epilog="Example: mainspring bench dag --members 20000 --chain 100 --layers 20 --workflows 100")
def dag(
    members: Annotated[int, typer.Option("--members", min=1, help="How many members the fan-out has.")] = 1_000_000,
    chain: Annotated[int, typer.Option("--chain", min=2, help="How many steps the chain has.")] = 1000,
    layers: Annotated[int, typer.Option("--layers", min=1, help="How many layers of as many steps.")] = 100,
    workflows: Annotated[int, typer.Option("--workflows", min=1, help="How many small workflows at once.")] = 1000,
    checked: Annotated[int, typer.Option("--checked", min=2, help="How many steps the graph has to check.")] = 100_000,
    as_json: JsonFlag = False,
) -> None:
    """Measure workflows: the check of a large graph, a chain of steps, layers with all edges between them, many small
    workflows at once, and a fan-out with a join beside plain jobs. Takes minutes with a million members."""
    from mainspring.bench.dag import DagSizes, main

    raise typer.Exit(main(DagSizes(members, chain, layers, workflows, checked), as_json))


@app.command(epilog="Example: mainspring bench jitter --schedules 50000 --seconds 60")
def jitter(
    schedules: Annotated[int, typer.Option("--schedules", min=1, help="How many schedules to register.")] = 1_000_000,
    seconds: Annotated[float, typer.Option("--seconds", min=1, help="The time within which each is due once.")] = 120.0,
    as_json: JsonFlag = False,
) -> None:
    """Measure how late tasks start of schedules at random moments: within two minutes. Takes minutes more: it
    registers a million schedules first."""
    from mainspring.bench.jitter import JitterSizes, main

    raise typer.Exit(main(JitterSizes(schedules, seconds), as_json))


@app.command(epilog="Example: mainspring bench failover --rounds 3 --only worker")
def failover(
    rounds: RoundsOption = 5,
    only: OnlyOption = None,
    patroni: Annotated[
        bool,
        typer.Option(
            "--patroni",
            help="Fail over between three PostgreSQL with Patroni instead: how long nothing is written, and whether "
            "anything is lost or happens twice. `make cluster` installs what it needs.",
        ),
    ] = False,
    rate: Annotated[float, typer.Option("--rate", min=1, help="With --patroni: submissions a second.")] = 50.0,
    as_json: JsonFlag = False,
) -> None:
    """Measure how long work stops when a part is killed: a scheduler, worker, server or PostgreSQL, or when the
    machine of a worker vanishes. Shows the slowest round."""
    if patroni:
        if only:
            raise typer.BadParameter("--patroni stops only the primary of PostgreSQL", param_hint="--only")
        from mainspring.bench.patroni.drill import main as drill

        raise typer.Exit(drill(rounds, rate, as_json))
    from mainspring.bench.failover import main

    raise typer.Exit(main(rounds, [part.value for part in only or BenchPart], as_json))


@app.command(epilog="Example: mainspring bench soak --minutes 60 --json")
def soak(
    minutes: Annotated[float, typer.Option("--minutes", min=0.2, help="How long the load lasts.")] = 60.0,
    snapshot: Annotated[
        bool, typer.Option("--snapshot/--no-snapshot", help="Whether another session keeps a snapshot open.")
    ] = True,
    as_json: JsonFlag = False,
) -> None:
    """Measure whether hours of full load end as they began: throughput of the first and the last part, memory of each
    process, and the size of tables and indexes. Exit code 1 if not."""
    from mainspring.bench.soak import main

    raise typer.Exit(main(minutes, as_json, snapshot=snapshot))


@app.command(epilog="Example: mainspring bench backup --jobs 1000000 --runs 5000000")
def backup(
    jobs: Annotated[int, typer.Option("--jobs", min=1, help="How many jobs the database has.")] = 1_000_000,
    runs: Annotated[int, typer.Option("--runs", min=1, help="How many ended runs it has.")] = 5_000_000,
    as_json: JsonFlag = False,
) -> None:
    """Measure backup and restore: how long a backup of the embedded PostgreSQL takes, its check and its restore, and
    how large it is."""
    from mainspring.bench.backup import main

    raise typer.Exit(main(jobs, runs, as_json))


@app.command(epilog="Example: mainspring bench output --json")
def output(
    megabytes: Annotated[
        int | None, typer.Option("--mb", min=1, help="How many megabytes each run prints.", show_default="100")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Measure how fast output is stored, in PostgreSQL and in a folder: a shell run that writes 100 MB to its log, with
    and without the default cap, the memory used, and how many runs per second print one line each."""
    from mainspring.bench.output import main

    raise typer.Exit(main(megabytes, as_json))


@app.command(epilog="Example: mainspring bench overload --seconds 10 --json")
def overload(
    workers: Annotated[int, typer.Option("--workers", min=1, help="How many workers hold runs.")] = 1000,
    runs: Annotated[int, typer.Option("--runs", min=1, help="How many runs they hold together.")] = 10_000,
    seconds: Annotated[float, typer.Option("--seconds", min=1, help="How long the load lasts.")] = 30.0,
    servers: ServersOption = 1,
    as_json: JsonFlag = False,
) -> None:
    """Measure servers that are offered twice what they can take: what becomes of jobs, and how soon they recover."""
    from mainspring.bench.overload import main

    raise typer.Exit(main(workers, runs, seconds, servers, as_json))


@app.command(epilog="Example: mainspring bench fleet --workers 1000 --slots 10 --seconds 2 --rate 2000 --json")
def fleet(
    workers: Annotated[int, typer.Option("--workers", min=1, help="How many workers there are.")] = 1000,
    slots: Annotated[int, typer.Option("--slots", min=1, help="How many slots each has.")] = 10,
    seconds: Annotated[float, typer.Option("--seconds", min=0, help="How long each run takes.")] = 2.0,
    rate: Annotated[float, typer.Option("--rate", min=1, help="How many jobs are offered a second.")] = 2000.0,
    servers: ServersOption = 1,
    as_json: JsonFlag = False,
) -> None:
    """Measure many small workers: jobs per second, how soon a report is acknowledged, and what an exchange costs the
    servers and PostgreSQL. The workers exchange as real ones do, and their runs only take time."""
    from mainspring.bench.fleet import FleetSizes, main

    raise typer.Exit(main(FleetSizes(workers, slots, seconds, rate, servers), as_json))


@app.command(epilog="Example: mainspring bench fold --json")
def fold(
    runs: Annotated[
        int | None, typer.Option("--runs", min=1, help="How many runs to fold.", show_default="800,000")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Measure what it costs to fold ended runs into rollups: microseconds of CPU time for each run, of PostgreSQL and
    the server together, with 1 and with 100 tasks. 1 % of the runs failed and 3 % were tried again."""
    from mainspring.bench.rollup import main

    raise typer.Exit(main(runs, as_json))


@app.command(epilog="Example: mainspring bench pages --jobs 100000 --runs 1000000 --json")
def pages(
    jobs: Annotated[int, typer.Option("--jobs", min=100, help="How many jobs there are.")] = 1_000_000,
    runs: Annotated[int, typer.Option("--runs", min=100, help="How many runs have ended.")] = 10_000_000,
    as_json: JsonFlag = False,
) -> None:
    """Measure how soon pages have their data: what the dashboard asks for first. Takes many minutes: it makes a
    million jobs and ten million runs first."""
    from mainspring.bench.pages import PagesSizes, main

    raise typer.Exit(main(PagesSizes(jobs, runs), as_json))


@app.command(epilog="Example: mainspring bench growth --jobs 1000000 --json")
def growth(
    jobs: Annotated[int, typer.Option("--jobs", min=100, help="The largest number of pending jobs.")] = 20_000_000,
    as_json: JsonFlag = False,
) -> None:
    """Measure what a job costs among few and among very many: bytes of a pending job and of an ended run, and what it
    costs to register, fire and claim jobs, beside 100,000, a million, ten million and `--jobs` pending ones. Takes many
    minutes and 20 GB of disk with twenty million."""
    from mainspring.bench.growth import GrowthSizes, main, sizes_up_to

    raise typer.Exit(main(GrowthSizes(sizes_up_to(jobs)), as_json))


@app.command(epilog="Example: mainspring bench told --rounds 5 --json")
def told(
    jobs: JobsOption = None,
    rounds: Annotated[int | None, typer.Option("--rounds", min=1, help="How often both are measured, in turn.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Measure what a rule costs: how many runs per second fail with and without one, in turn, and how many
    messages the failures of a minute become. Default: 10,000 failures, 5 rounds."""
    from mainspring.bench.told import main

    raise typer.Exit(main(jobs, rounds, as_json))


@app.command(epilog="Example: mainspring bench logs --runs 100000 --bytes 10000 --json")
def logs(
    runs: Annotated[int, typer.Option("--runs", min=1, help="How many runs have printed.")] = 5_000,
    size: Annotated[int, typer.Option("--bytes", min=1, max=1_000_000, help="What each of them printed.")] = 2_000,
    printing: Annotated[
        int, typer.Option("--printing", min=0, help="How many runs really print, for the cost. 0: none.")
    ] = 2_000,
    as_json: JsonFlag = False,
) -> None:
    """Measure the search of logs: how soon a server finds words in the output of many runs: a rare word, in the
    oldest of the runs, until the first hit and until all are searched, and a common word, in every run, until the first
    hit and until the first 100 logs."""
    from mainspring.bench.logs import LogSizes, main

    raise typer.Exit(main(LogSizes(runs, size, printing), as_json))
