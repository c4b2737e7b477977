"""What the commands about operations share: filters, one operation on the screen, and its progress."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mainspring.cli import watching
from mainspring.cli.exit_codes import FAILURE, INTERRUPTED
from mainspring.cli.find_id import choose
from mainspring.cli.screen import say, show_fields, show_json

if TYPE_CHECKING:
    from mainspring.sdk.client.client import Client
    from mainspring.wire.bulk import OperationView

OPERATION_HELP = "The operation's id. Its end or its beginning is enough."
TARGETS = ("jobs", "runs", "dead-letters")
_LISTS = ("status", "latest_run", "schedule_type", "health")
_NEWEST = 1000
_PATIENCE = 60.0  # waiting survives a restart of the server
_INTERVAL = 0.5


def filter_of(pairs: list[str]) -> dict[str, Any]:
    """`["queue=mails", "status=failed"]` as the filter of a request."""
    from mainspring.domain.errors import InvalidInput

    found: dict[str, Any] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise InvalidInput(f"{pair!r} is not a filter", expected="NAME=VALUE, such as queue=mails")
        name = name.replace("-", "_")
        found[name] = value.split(",") if name in _LISTS else value
    return found


def operation_id(client: Client, text: str) -> str:
    """The id of the operation whose id begins or ends with the text. Only the newest are searched."""
    from mainspring.kernel.ids import parse_uuid

    if parse_uuid(text) is not None:
        return text
    return choose(text, (view.id for view in client.operations(limit=_NEWEST).operations), "operation")


def wait_for(client: Client, view: OperationView) -> OperationView:
    """Ask for the progress until the operation has ended."""
    client.patience = _PATIENCE
    while view.ended_at is None:
        watching.pause(_INTERVAL)
        view = client.operation(view.id)
    return view


def watch_operation(client: Client, view: OperationView, *, as_json: bool) -> int:
    """Wait for the end. Returns the exit code: 0 if it is done and nothing was refused."""
    try:
        view = wait_for(client, view)
    except KeyboardInterrupt:
        say(f"\nstopped watching; the operation continues. To end it: mainspring operation cancel {view.id}")
        return INTERRUPTED
    show_operation(view, as_json=as_json)
    return 0 if view.state == "DONE" and not view.failed else FAILURE


def show_operation(view: OperationView, *, as_json: bool) -> None:
    if as_json:
        show_json(view)
        return
    show_fields(
        [
            ("operation", view.id),
            ("what", f"{view.verb} {view.target.replace('_', ' ')}"),
            ("filter", None if view.filter is None else in_words(view.filter)),
            ("state", view.state),
            ("reason", view.reason),
            ("progress", progress(view)),
            ("by", view.requested_by),
        ]
    )
    for failure in view.failures:
        say(f"not {failure.id}: {failure.reason}")
    if view.failed > len(view.failures):
        say(f"and {view.failed - len(view.failures)} more were refused")


def progress(view: OperationView) -> str:
    about = "" if view.exact else "about "
    refused = f", {view.failed} refused" if view.failed else ""
    return f"{view.done} of {about}{view.count} done{refused}"


def in_words(chosen: dict[str, Any]) -> str:
    shown = [f"{name}={','.join(value) if isinstance(value, list) else value}" for name, value in chosen.items()]
    return " ".join(shown) or "all"
