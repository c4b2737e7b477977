"""The output of a run on the screen: lines that contain a text, and the log as it grows."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING

from mainspring.cli.exit_codes import FAILURE, INTERRUPTED
from mainspring.cli.log_parts import LastLines, MissingOutput, matching_lines
from mainspring.cli.screen import say, show_json, show_output
from mainspring.kernel.terminal import visible_json

if TYPE_CHECKING:
    from mainspring.sdk.client.client import Client
    from mainspring.sdk.client.log_stream import LogEvent
    from mainspring.wire.logs import LogMatch

_PATIENCE = 60.0  # following a log survives a restart of the server


def show_matches(
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


def follow_log(
    client: Client, run_id: str, attempt: int | None, last: LastLines | None, *, as_json: bool, raw: bool
) -> int:
    client.patience = _PATIENCE
    from mainspring.sdk.client.log_stream import LogEvent

    if last is not None and last.text and as_json:
        show_output(_as_line(run_id, LogEvent("output", last.attempt, last.text)))
    elif last is not None:
        show_output(last.text, raw=raw)
    missing = MissingOutput()
    missing.see("" if last is None else last.text)
    try:
        for event in client.log_events(run_id, attempt, None if last is None else last.mark):
            if as_json:
                show_output(_as_line(run_id, event))
            missing.see(event.text)
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
                    return missing.exit_code(0 if event.status == "SUCCESS" else FAILURE)
    except KeyboardInterrupt:
        say(f"\nstopped following; the run continues. To stop it: mainspring run cancel {run_id}")
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
