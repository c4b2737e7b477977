"""`mainspring logs`"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from mainspring.cli.connect import DataOption, JsonFlag, TokenFileOption, UrlOption, connect
from mainspring.cli.exit_codes import FAILURE, INTERRUPTED
from mainspring.cli.screen import say, show_json, show_output
from mainspring.cli.which_run import RunOrJob, find_run_id
from mainspring.kernel.terminal import visible_json

if TYPE_CHECKING:
    from mainspring.sdk.client.client import Client
    from mainspring.sdk.client.log_stream import LogEvent

EXAMPLES = (
    "mainspring logs 6f0a8b11 -f",
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
    with connect(url, token_file, data) as client:
        run_id = find_run_id(client, run_or_job)
        if follow:
            raise typer.Exit(_follow(client, run_id, attempt, as_json=as_json, raw=raw))
        text = client.logs(run_id, attempt)
    if as_json:
        show_json({"run_id": run_id, "attempt": attempt, "text": text})
    else:
        show_output(text, raw=raw)


def _follow(client: Client, run_id: str, attempt: int | None, *, as_json: bool, raw: bool) -> int:
    client.patience = _PATIENCE
    try:
        for event in client.log_events(run_id, attempt):
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
