"""`mainspring logs`"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

import typer

from mainspring.cli.connect import DataOption, JsonFlag, TokenFileOption, UrlOption, connect
from mainspring.cli.exit_codes import FAILURE, INTERRUPTED
from mainspring.cli.log_parts import LastLines, last_lines, matching_lines
from mainspring.cli.screen import say, show_json, show_output
from mainspring.cli.which_run import RunOrJob, find_run_id
from mainspring.kernel.terminal import visible_json

if TYPE_CHECKING:
    from mainspring.sdk.client.client import Client
    from mainspring.sdk.client.log_stream import LogEvent
    from mainspring.wire.logs import LogMatch

EXAMPLES = (
    "mainspring logs 6f0a8b11 -f",
    "mainspring logs 6f0a8b11 --tail 100",
    "mainspring logs daily_report --grep timeout",
    "mainspring logs daily_report --attempt 1",
)
_PATIENCE = 60.0  # following a log survives a restart of the server


def command(
    run_or_job: RunOrJob,
    follow: Annotated[
        bool,
        typer.Option(
            "--follow", "-f", help="Follow the log until the run ends, including retries. Exit with 0 only on SUCCESS."
        ),
    ] = False,
    attempt: Annotated[
        int | None,
        typer.Option("--attempt", metavar="N", min=1, help="Show only this attempt.", show_default="the newest"),
    ] = None,
    tail: Annotated[
        int | None,
        typer.Option("--tail", metavar="N", min=1, help="Show only the last N lines. With --follow, begin there."),
    ] = None,
    grep: Annotated[
        str | None,
        typer.Option(
            "--grep",
            metavar="TEXT",
            help="Show only lines that contain this text, in upper or lower case. Exit with 1 if there are none.",
        ),
    ] = None,
    raw: Annotated[
        bool,
        typer.Option(
            "--raw",
            help="Let control characters of the output reach your terminal, such as colours. Only for output that you "
            "trust. A pipe or a file always gets the exact output.",
            show_default=False,
        ),
    ] = False,
    as_json: JsonFlag = False,
    url: UrlOption = None,
    token_file: TokenFileOption = None,
    data: DataOption = None,
) -> None:
    """Show the output of a run: stdout, stderr and what its task logged. --json -f prints one JSON object per line."""
    if grep is not None and follow:
        raise typer.BadParameter("lines that arrive cannot be filtered; leave out --follow", param_hint="--grep")
    with connect(url, token_file, data) as client:
        run_id = find_run_id(client, run_or_job)
        if grep is not None:
            raise typer.Exit(_grep(client, run_id, attempt, grep, tail, as_json=as_json, raw=raw))
        last = None if tail is None else last_lines(client, run_id, attempt, tail)
        if follow:
            raise typer.Exit(_follow(client, run_id, attempt, last, as_json=as_json, raw=raw))
        text = client.logs(run_id, attempt) if last is None else last.text
    if as_json:
        show_json({"run_id": run_id, "attempt": attempt, "text": text})
    else:
        show_output(text, raw=raw)
        if last is not None and last.truncated:
            say("the output was truncated here")


def _grep(
    client: Client, run_id: str, attempt: int | None, text: str, tail: int | None, *, as_json: bool, raw: bool
) -> int:
    found: Iterable[LogMatch] = matching_lines(client, run_id, attempt, text)
    if tail is not None:
        found = deque(found, maxlen=tail)
    if as_json:
        found = list(found)
        show_json({"run_id": run_id, "attempt": attempt, "matches": found})
        return 0 if found else FAILURE
    count = 0
    for match in found:
        show_output(f"{match.text}\n", raw=raw)
        count += 1
    if not count:
        say(f"no line contains {text!r}")
    return 0 if count else FAILURE


def _follow(
    client: Client, run_id: str, attempt: int | None, last: LastLines | None, *, as_json: bool, raw: bool
) -> int:
    client.patience = _PATIENCE
    from mainspring.sdk.client.log_stream import LogEvent

    if last is not None and last.text and as_json:
        show_output(_as_line(run_id, LogEvent("output", last.attempt, last.text)))
    elif last is not None:
        show_output(last.text, raw=raw)
    try:
        for event in client.log_events(run_id, attempt, None if last is None else last.mark):
            if as_json:
                show_output(_as_line(run_id, event))
            match event.kind:
                case "output" | "truncated" | "attempt" if as_json:
                    continue
                case "output" | "truncated":
                    show_output(event.text, raw=raw)
                case "attempt":
                    say(f"--- attempt {event.attempt} ---")
                case "end":
                    if event.status != "SUCCESS" and not as_json:
                        say(f"{event.status} (run {run_id})")
                    return 0 if event.status == "SUCCESS" else FAILURE
    except KeyboardInterrupt:
        say(f"\nstopped following; the run continues. To stop it: mainspring cancel {run_id}")
        return INTERRUPTED
    return FAILURE


def _as_line(run_id: str, event: LogEvent) -> str:
    """The event as the server sends it. Always one line, also on a terminal."""
    import msgspec

    line: dict[str, object] = {"run_id": run_id, "event": event.kind}
    line |= {"status": event.status} if event.kind == "end" else {"attempt": event.attempt}
    if event.text:
        line["text"] = event.text
    return visible_json(msgspec.json.encode(line).decode()) + "\n"
