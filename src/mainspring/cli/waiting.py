"""`--wait`: show a run's state until it ends, then its result or its error."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mainspring.cli.exit_codes import FAILURE, INTERRUPTED
from mainspring.cli.screen import cell, say, show_json, show_line, stderr
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
_TRIES_ARE_OVER = "no tries left"  # "failed 4 time(s), no tries left": the line above says as much
_PATIENCE = 60.0  # a server that restarts while we wait is no reason to stop waiting


def longest_wait(timeout: str | None, *, wait: bool) -> float | None:
    """How long --timeout-wait lets us wait, in seconds. To be asked before anything is submitted."""
    from mainspring.domain.durations import parse_duration
    from mainspring.domain.errors import InvalidInput

    if timeout is None:
        return None
    if not wait:
        raise InvalidInput("there is no wait to end", field="timeout_wait", hint="add --wait")
    return parse_duration(timeout, "timeout_wait")


def wait_and_show(client: Client, handle: Handle, *, timeout: float | None, as_json: bool) -> int:
    """Wait for the end and show it; gives the exit code: 0 for SUCCESS, 1 for any other end or for no end in time."""
    client.patience = _PATIENCE
    try:
        run = _watched(handle, timeout, quiet=as_json)
    except TimeoutError as error:
        say(f"error: {error}\nhint: the job goes on; see: mainspring job {handle.job_id}")
        return FAILURE
    except KeyboardInterrupt:
        say(f"\nno longer waiting; the job goes on. To stop it: mainspring cancel {handle.run_id or handle.job_id}")
        return INTERRUPTED
    if as_json:
        show_json(run)
    else:
        show_end(run)
    return 0 if run.status == "SUCCESS" else FAILURE


def show_end(run: RunView) -> None:
    """The result on stdout, and how it ended on stderr."""
    took = f" after {span(run.duration)}" if run.duration is not None else ""
    tries = f", attempt {run.attempt_number} of {run.max_attempts}" if run.attempt_number > 1 else ""
    say(f"{run.status}{took}{tries} (run {run.run_id})")
    if run.status == "SUCCESS":
        show_result(run)
        return
    error = brief(run.error_message or "")
    if run.reason and not run.reason.endswith(_TRIES_ARE_OVER):
        error = f"{error}\n{run.reason}".strip()
    if error:
        say(f"error: {error}")


def brief(error: str) -> str:
    """An error with a screenful of a command's output at most: its beginning says what happened, its end mostly why."""
    lines = error.rstrip().split("\n")
    if len(lines) <= _ERROR_LINES:
        return error.rstrip()
    kept = _ERROR_LINES // 2
    return "\n".join([*lines[:kept], f"... {len(lines) - 2 * kept} more lines ...", *lines[-kept:]])


def show_result(run: RunView) -> None:
    """What the run returned; of a shell run, what it printed."""
    result: Any = run.result
    if run.task == "shell" and isinstance(result, dict) and isinstance(result.get("output"), str):
        result = result["output"].rstrip("\n") or None
    if isinstance(result, str):
        show_line(result)
    elif result is not None:
        show_json(result)


def _watched(handle: Handle, seconds: float | None, *, quiet: bool) -> RunView:
    console = stderr()
    if quiet or not console.is_terminal:
        return handle.wait(seconds)
    with Watching(console) as watching:
        return handle.wait(seconds, seen=watching.show)


class Watching:
    """A run's state beside a spinner, and a bar with its words once it says how far it has come."""

    def __init__(self, console: Console) -> None:
        from rich.live import Live
        from rich.spinner import Spinner

        self._spinner = Spinner("dots", cell("submitted"))
        self._live = Live(self._spinner, console=console, refresh_per_second=12.5, transient=True)

    def __enter__(self) -> Watching:
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
