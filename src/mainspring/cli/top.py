"""`mainspring top`"""

from __future__ import annotations

import sys
from collections import deque
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from mainspring.cli import figures
from mainspring.cli.connect import Server
from mainspring.cli.screen import cell, has_width, stdout, table_texts
from mainspring.cli.table import Column, cut, wrapped
from mainspring.cli.text_formats import TimeFormat, span

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.text import Text

    from mainspring.sdk.client.client import Client
    from mainspring.wire.insights import Overview
    from mainspring.wire.runs import QueueView, RunView, WorkerView

EXAMPLES = ("mainspring top", "mainspring top --interval 5s", "mainspring top --once | head")
_EVERY = "2s"
_HISTORY = 60
_MOST_QUEUES = 8
_MOST_WORKERS = 6
_MOST_FAILURES = 6
_WITHOUT_WIDTH = 120
_LABEL_WIDTH = 13
_QUEUES = (
    Column("QUEUE", least=12),
    Column("WAITING", right=True),
    Column("OLDEST", rank=2, right=True),
    Column("RUNNING", right=True),
    Column("RUNS/S", right=True),
    Column("FAILED/MIN", rank=1, right=True),
    Column("WORKERS", rank=3, right=True),
)
_WORKERS = (
    Column("WORKER", least=14),
    Column("STATE"),
    Column("RUNNING", right=True),
    Column("QUEUES", rank=2, least=8),
    Column("LAST BEAT", rank=1),
)
_FAILURES = (
    Column("FAILED RUN", ids=True),
    Column("JOB", rank=2, least=12, ids=True),
    Column("TASK", rank=3, least=10),
    Column("WHEN", rank=1),
    Column("ERROR", least=18),
)


@dataclass(frozen=True, slots=True)
class Seen:
    overview: Overview
    workers: list[WorkerView]
    failures: list[RunView]


def command(
    server: Server,
    interval: Annotated[str, typer.Option("--interval", metavar="D", help="How often it is refreshed.")] = _EVERY,
    once: Annotated[bool, typer.Option("--once", help="Print it once. A pipe always gets it once.")] = False,
) -> None:
    """Watch the system live: throughput, lag, queues, workers and the latest failures. Ctrl-C ends it."""
    from mainspring.cli.watching import parse_interval, watch

    seconds = parse_interval(interval)
    rates: deque[float] = deque(maxlen=_HISTORY)

    def read() -> Seen:
        seen = look(client)
        rates.append(seen.overview.rate)
        return seen

    with server.connect() as client:
        if not once and sys.stdout.isatty():
            raise typer.Exit(watch("Mainspring", read, lambda seen, width: draw(seen, list(rates), width), seconds))
        seen = read()
    console = stdout()
    for line in draw(seen, list(rates), console.width if has_width() else _WITHOUT_WIDTH):
        console.print(line, soft_wrap=True)


def look(client: Client) -> Seen:
    live_first = sorted(client.workers().workers, key=lambda worker: (worker.state != "LIVE", -worker.running))
    return Seen(client.overview(), live_first[:_MOST_WORKERS], client.runs(status="failed", limit=_MOST_FAILURES).runs)


def draw(seen: Seen, rates: Sequence[float], width: int) -> list[Text]:
    """The screen: figures, problems, and one table each of queues, workers and failures."""
    overview, times = seen.overview, TimeFormat(datetime.now(UTC))
    lines = [
        _line("status", overview.status + f", version {overview.version}", width),
        *(
            _line("problem", part, width, style="bold red")
            for problem in overview.problems
            for part in wrapped(problem, max(20, width - _LABEL_WIDTH))
        ),
        *(_line("paused", words, width, style="bold") for words in overview.paused),
        _line("last minute", figures.last_minute(overview), width),
        _line("throughput", figures.sparkline(rates, width - _LABEL_WIDTH), width),
        _line("runs", figures.runs(overview), width),
        _line("scheduling", figures.scheduling(overview), width),
        _line("workers", figures.workers(overview), width),
        _line("dead letters", figures.dead_letters(overview), width),
    ]
    for columns, rows in (
        (_QUEUES, [_queue_row(queue) for queue in overview.queues[:_MOST_QUEUES]]),
        (_WORKERS, [_worker_row(worker, times) for worker in seen.workers]),
        (_FAILURES, [_failure_row(run, times) for run in seen.failures]),
    ):
        if rows:
            lines += [cell(""), *table_texts(columns, rows, width)]
    return lines


def _line(label: str, text: str, width: int, style: str = "") -> Text:
    from rich.text import Text

    line = Text(label.ljust(_LABEL_WIDTH), style="dim")
    value = cell(cut(text, width - _LABEL_WIDTH))
    line.append(value.plain, style=style or value.style)
    return line


def _queue_row(queue: QueueView) -> tuple[str, ...]:
    return (
        queue.name,
        f"{queue.depth:,}",
        "" if queue.oldest_seconds is None else span(queue.oldest_seconds),
        f"{queue.running:,}",
        f"{queue.rate:.1f}",
        f"{queue.failed:,}",
        str(queue.workers),
    )


def _worker_row(worker: WorkerView, times: TimeFormat) -> tuple[str, ...]:
    return (
        worker.name,
        worker.state,
        f"{worker.running}/{worker.slots}",
        ", ".join(worker.queues),
        times.brief(worker.last_beat_at),
    )


def _failure_row(run: RunView, times: TimeFormat) -> tuple[str, ...]:
    from mainspring.kernel.texts import error_line

    return (
        run.run_id,
        "" if run.job_id == run.run_id else run.job_id,
        run.task,
        times.brief(run.end_time),
        error_line(run.error_message or run.reason or ""),
    )
