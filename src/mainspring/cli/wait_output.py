"""`--wait`: show the output of a run as it comes and its state until it ends, then its result or its error."""

from __future__ import annotations

import sys
import threading
from collections import Counter
from typing import TYPE_CHECKING, Any

from mainspring.cli.exit_codes import FAILURE, INTERRUPTED
from mainspring.cli.screen import cell, say, shares_a_screen, show_json, show_output, stderr
from mainspring.cli.text_formats import span
from mainspring.kernel.texts import error_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console, RenderableType
    from rich.spinner import Spinner
    from rich.table import Table

    from mainspring.sdk.client.client import Client
    from mainspring.sdk.client.handle import Handle
    from mainspring.wire.runs import JobStatus, RunView, TimelineEntry

_BAR_WIDTH = 30
_ERROR_LINES = 20
_NO_TRIES_LEFT = "no tries left"  # "failed 4 times, no tries left": the line above contains the same information
_PATIENCE = 60.0  # waiting survives a restart of the server
_LONGEST_SILENCE = 5.0
_ENDS_OF_ATTEMPTS = ("FAILED", "LOST", "RETURNED", "SNOOZED")


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
    output = OutputFollower(client)
    try:
        run = _watched(handle, timeout, None if as_json else output)
    except TimeoutError as error:
        output.stop()
        say(f"error: {error}\nhint: the job continues; to see it: mainspring job show {handle.job_id}")
        return FAILURE
    except KeyboardInterrupt:
        output.stop()
        what = f"job cancel {handle.job_id}" if handle.run_id is None else f"run cancel {handle.run_id}"
        say(f"\nstopped waiting; the job continues. To stop it: mainspring {what}")
        return INTERRUPTED
    if as_json:
        show_json(run)
    else:
        show_end(run, client.timeline(run.run_id) if run.attempt_number > 1 else [], shown=output.shown)
    return 0 if run.status == "SUCCESS" else FAILURE


class OutputFollower:
    """Prints the output of a run in a thread, from its start through all attempts."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._thread: threading.Thread | None = None
        self._stopped = False
        self._events = 0
        self._line_is_open = False
        self.shown = False

    def see(self, status: JobStatus) -> None:
        """Start to print as soon as there is a run. Its first attempt may be over when it is seen again."""
        run = status.latest_run
        if self._thread is None and run is not None:
            self._thread = threading.Thread(target=self._follow, args=(run.run_id,), daemon=True)
            self._thread.start()

    def finish(self) -> None:
        """Wait for the rest of the output, as long as some comes."""
        heard = -1
        while self._thread is not None and self._thread.is_alive() and heard != self._events:
            heard = self._events
            self._thread.join(_LONGEST_SILENCE)
        self.stop()

    def stop(self) -> None:
        """Print nothing any more. The thread ends when the client is closed."""
        self._stopped = True
        self._end_line()

    def _end_line(self) -> None:
        """A message must not continue the last line of the output."""
        if self._line_is_open and shares_a_screen():
            say("")
        self._line_is_open = False

    def _follow(self, run_id: str) -> None:
        try:
            for event in self._client.log_events(run_id):
                self._events += 1
                if self._stopped:
                    return
                if event.kind in ("output", "truncated"):
                    self.shown = True
                    show_output(event.text)
                    self._line_is_open = not event.text.endswith("\n") if event.text else self._line_is_open
                elif event.kind == "attempt":
                    self._end_line()
                    say(f"--- attempt {event.attempt} ---")
        except Exception as error:  # noqa: BLE001 - also what a closed client raises; the verdict does not need the log
            if not self._stopped:
                say(f"the output cannot be shown: {error}")


def show_end(run: RunView, steps: Sequence[TimelineEntry] = (), *, shown: bool = False) -> None:
    """Print the result on stdout and the verdict over all attempts on stderr. `shown`: the output is there already."""
    say(verdict(run, steps))
    if run.status == "SUCCESS":
        if not (shown and run.task == "shell"):
            show_result(run)
        return
    error = (
        brief(run.error_message or "") if not (shown and run.task == "shell") else error_line(run.error_message or "")
    )
    if run.reason and not run.reason.endswith(_NO_TRIES_LEFT):
        error = f"{error}\n{run.reason}".strip()
    if error:
        say(f"error: {error}")


def verdict(run: RunView, steps: Sequence[TimelineEntry]) -> str:
    """ "SUCCESS on attempt 3 of 4 after 8.2s; the others: FAILED: exit code 3 (2 times) (run ...)"."""
    if run.attempt_number <= 1:
        took = f" after {span(run.duration)}" if run.duration is not None else ""
        return f"{run.status}{took} (run {run.run_id})"
    begun = min((step.at for step in steps if step.state == "RUNNING"), default=run.start_time)
    took = "" if begun is None or run.end_time is None else f" after {span((run.end_time - begun).total_seconds())}"
    ends = Counter(
        f"{step.state}: {error_line(step.error)}" if step.error else step.state
        for step in steps
        if step.state in _ENDS_OF_ATTEMPTS and step.attempt is not None and step.attempt < run.attempt_number
    )
    others = ", ".join(f"{end} ({number} times)" if number > 1 else end for end, number in ends.items())
    before = f"; before that {others}" if others else ""
    return f"{run.status} on attempt {run.attempt_number} of {run.max_attempts}{took}{before} (run {run.run_id})"


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


def _watched(handle: Handle[Any], seconds: float | None, output: OutputFollower | None) -> RunView:
    console = stderr()
    if output is None:
        return handle.wait(seconds)
    if not console.is_terminal:
        run = handle.wait(seconds, seen=output.see)
        output.finish()
        return run
    with LiveStatus(console) as live_status:

        def see(status: JobStatus) -> None:
            live_status.show(status)
            output.see(status)

        run = handle.wait(seconds, seen=see)
        output.finish()
        return run


class LiveStatus:
    """A spinner with the run's state. A progress bar and its message are added when the run reports progress."""

    def __init__(self, console: Console) -> None:
        from rich.live import Live
        from rich.spinner import Spinner

        self._spinner = Spinner("dots", cell("submitted"))
        # On a terminal the output of the run is printed above the spinner. A pipe gets it as it is.
        self._live = Live(
            self._spinner,
            console=console,
            refresh_per_second=12.5,
            transient=True,
            redirect_stdout=sys.stdout.isatty(),
        )

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
