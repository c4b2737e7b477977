"""`--wait`: show the state of a run until it ends, then its result or its error."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mainspring.cli.exit_codes import FAILURE, INTERRUPTED
from mainspring.cli.screen import cell, say, show_json, show_output, stderr
from mainspring.cli.wording import span

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.spinner import Spinner
    from rich.table import Table

    from mainspring.sdk.client.client import Client
    from mainspring.sdk.client.handle import Handle
    from mainspring.wire.runs import JobStatus, RunView

_BAR_WIDTH = 30
_ERROR_LINES = 20
_NO_TRIES_LEFT = "no tries left"  # "failed 4 time(s), no tries left": the line above contains the same information
_PATIENCE = 60.0  # waiting survives a restart of the server


def longest_wait(timeout: str | None, *, wait: bool) -> float | None:
    """The seconds of --timeout-wait. Call it before anything is submitted, so that a mistake submits nothing."""
    from mainspring.domain.durations import parse_duration
    from mainspring.domain.errors import InvalidInput

    if timeout is None:
        return None
    if not wait:
        raise InvalidInput("--timeout-wait needs --wait", field="timeout_wait", hint="add --wait")
    return parse_duration(timeout, "timeout_wait")


def wait_and_show(client: Client, handle: Handle[Any], *, timeout: float | None, as_json: bool) -> int:
    """Wait until the run ends and show its outcome. Returns the exit code: 0 for SUCCESS, 1 otherwise."""
    client.patience = _PATIENCE
    try:
        run = _watched(handle, timeout, quiet=as_json)
    except TimeoutError as error:
        say(f"error: {error}\nhint: the job continues; to see it: mainspring job {handle.job_id}")
        return FAILURE
    except KeyboardInterrupt:
        say(f"\nstopped waiting; the job continues. To stop it: mainspring cancel {handle.run_id or handle.job_id}")
        return INTERRUPTED
    if as_json:
        show_json(run)
    else:
        show_end(run)
    return 0 if run.status == "SUCCESS" else FAILURE


def show_end(run: RunView) -> None:
    """Print the result on stdout and the outcome on stderr."""
    took = f" after {span(run.duration)}" if run.duration is not None else ""
    tries = f", attempt {run.attempt_number} of {run.max_attempts}" if run.attempt_number > 1 else ""
    say(f"{run.status}{took}{tries} (run {run.run_id})")
    if run.status == "SUCCESS":
        show_result(run)
        return
    error = brief(run.error_message or "")
    if run.reason and not run.reason.endswith(_NO_TRIES_LEFT):
        error = f"{error}\n{run.reason}".strip()
    if error:
        say(f"error: {error}")


def brief(error: str) -> str:
    """Shorten an error to one screen. Its first lines tell what happened and its last lines usually tell why."""
    lines = error.rstrip().split("\n")
    if len(lines) <= _ERROR_LINES:
        return error.rstrip()
    kept = _ERROR_LINES // 2
    return "\n".join([*lines[:kept], f"... {len(lines) - 2 * kept} more lines ...", *lines[-kept:]])


def show_result(run: RunView) -> None:
    """Print what the run returned. For a shell run, print its output."""
    result: Any = run.result
    if run.task == "shell" and isinstance(result, dict) and isinstance(result.get("output"), str):
        result = result["output"].rstrip("\n") or None
    if isinstance(result, str):
        show_output(f"{result}\n")
    elif result is not None:
        show_json(result)


def _watched(handle: Handle[Any], seconds: float | None, *, quiet: bool) -> RunView:
    console = stderr()
    if quiet or not console.is_terminal:
        return handle.wait(seconds)
    with LiveStatus(console) as live_status:
        return handle.wait(seconds, seen=live_status.show)


class LiveStatus:
    """A spinner with the run's state. A progress bar and its message are added when the run reports progress."""

    def __init__(self, console: Console) -> None:
        from rich.live import Live
        from rich.spinner import Spinner

        self._spinner = Spinner("dots", cell("submitted"))
        self._live = Live(self._spinner, console=console, refresh_per_second=12.5, transient=True)

    def __enter__(self) -> LiveStatus:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def show(self, status: JobStatus) -> None:
        run = status.latest_run
        progress = None if run is None else run.progress
        self._spinner.update(text=cell(_state(status)))
        if progress is None:
            self._live.update(self._spinner, refresh=True)
        else:
            self._live.update(_with_bar(self._spinner, progress.fraction, progress.message), refresh=True)


def _with_bar(spinner: Spinner, fraction: float | None, message: str | None) -> Table:
    from rich.progress_bar import ProgressBar
    from rich.table import Table

    row = Table.grid(padding=(0, 1))
    parts: list[RenderableType] = [spinner]
    if fraction is not None:
        parts += [ProgressBar(total=1.0, completed=fraction, width=_BAR_WIDTH), cell(f"{fraction:.0%}")]
    if message:
        parts.append(cell(message))
    row.add_row(*parts)
    return row


def _state(status: JobStatus) -> str:
    run = status.latest_run
    if run is None:
        return status.status
    return f"{run.status} ({run.reason})" if run.reason else run.status
