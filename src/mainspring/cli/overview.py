"""`mainspring overview`"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, cast

import typer

from mainspring.cli import figures
from mainspring.cli.connect import JsonFlag, Server
from mainspring.cli.screen import show_fields, show_json
from mainspring.cli.text_formats import span

if TYPE_CHECKING:
    from mainspring.wire.insights import Overview, Totals, WindowWord

EXAMPLES = ("mainspring overview", "mainspring overview --last 7d --queue mail")
_WINDOWS = ("1h", "6h", "24h", "7d", "30d")
_WIDTH = 60


def command(
    server: Server,
    last: Annotated[str, typer.Option("--last", metavar="W", help="1h, 6h, 24h, 7d or 30d.")] = "1h",
    queue: Annotated[str | None, typer.Option("--queue", help="Only of this queue.", show_default=False)] = None,
    task: Annotated[str | None, typer.Option("--task", help="Only of this task.", show_default=False)] = None,
    as_json: JsonFlag = False,
) -> None:
    """Show what ended in the last hour to thirty days: outcomes, success rate, start lag and durations."""
    if last not in _WINDOWS:
        raise typer.BadParameter(f"{last!r} is not one of {', '.join(_WINDOWS)}", param_hint="--last")
    with server.connect() as client:
        seen = client.overview(cast("WindowWord", last), queue=queue, task=task)
    if as_json:
        show_json(seen)
    else:
        show_fields(_fields(seen))


def _fields(seen: Overview) -> list[tuple[str, str]]:
    assert seen.window is not None and seen.verdict is not None
    window, now = seen.window, seen.window.totals
    ended = [sum(each) for each in zip(window.series.succeeded, window.series.failed, strict=True)]
    return [
        ("verdict", seen.verdict.text),
        ("ended", f"{now.ended:,} ({window.previous.ended:,} in the {window.w} before)"),
        ("over time", figures.sparkline([float(each) for each in ended[-_WIDTH:]], _WIDTH)),
        ("outcomes", _outcomes(now)),
        ("success", "-" if now.success_rate is None else f"{100 * now.success_rate:.2f} %"),
        ("start lag", _percentiles(now.lag_p50, now.lag_p99)),
        ("duration", _percentiles(now.duration_p50, now.duration_p99)),
        ("now", figures.runs(seen)),
    ]


def _outcomes(totals: Totals) -> str:
    names = ("succeeded", "failed", "cancelled", "skipped", "retried", "lost", "missed")
    shown = [f"{getattr(totals, name):,} {name}" for name in names if getattr(totals, name)]
    return ", ".join(shown) or "none"


def _percentiles(half: float | None, most: float | None) -> str:
    return "-" if half is None or most is None else f"p50 {_brief(half)}, p99 {_brief(most)}"


def _brief(seconds: float) -> str:
    return f"{seconds * 1000:g} ms" if seconds < 1 else span(seconds)
