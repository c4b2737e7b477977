"""`mainspring submit`"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from mainspring.cli.connect import DataOption, JsonFlag, TokenFileOption, UrlOption, connect
from mainspring.cli.screen import say, show_json, show_line
from mainspring.cli.waiting import wait_and_show

EXAMPLES = (
    "mainspring submit hello name=you --wait",
    "mainspring submit --command 'date' --cron '* * * * *' --name clock",
    'mainspring submit report.generate --payload \'{"region": "eu"}\' --at 2026-12-31T23:59:59Z',
)
_WHEN = "When"
_HOW = "How"


def command(
    task: Annotated[
        str | None, typer.Argument(metavar="TASK", help="Name of the task; not with --command.", show_default=False)
    ] = None,
    params: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="KEY=VALUE",
            help="The task's parameters. A value that is JSON is taken as JSON (3, true, [1]), any other as text.",
            show_default=False,
        ),
    ] = None,
    payload: Annotated[
        str | None, typer.Option("--payload", metavar="JSON", help="The parameters as one JSON object instead.")
    ] = None,
    command_line: Annotated[
        str | None, typer.Option("--command", metavar="CMD", help="Run a shell command instead of a task.")
    ] = None,
    at: Annotated[
        str | None,
        typer.Option("--at", metavar="T", help="Once, at 2026-12-31T23:59:59Z.", rich_help_panel=_WHEN),
    ] = None,
    every: Annotated[
        str | None, typer.Option("--every", metavar="D", help="Every 90s, 15m, 1h30m.", rich_help_panel=_WHEN)
    ] = None,
    cron: Annotated[
        str | None,
        typer.Option("--cron", metavar="E", help="By cron: '0 9 * * MON-FRI', @daily.", rich_help_panel=_WHEN),
    ] = None,
    timezone: Annotated[
        str | None,
        typer.Option("--timezone", metavar="Z", help="Zone of --cron: Europe/Berlin.", rich_help_panel=_WHEN),
    ] = None,
    manual: Annotated[
        bool, typer.Option("--manual", help="Only by `mainspring run-now`.", rich_help_panel=_WHEN)
    ] = False,
    name: Annotated[str | None, typer.Option("--name", help="A title.", rich_help_panel=_HOW)] = None,
    queue: Annotated[str | None, typer.Option("--queue", metavar="Q", rich_help_panel=_HOW)] = None,
    priority: Annotated[
        str | None, typer.Option("--priority", metavar="P", help="low, normal, high or critical.", rich_help_panel=_HOW)
    ] = None,
    timeout: Annotated[
        str | None, typer.Option("--timeout", metavar="D", help="For each attempt: 15m.", rich_help_panel=_HOW)
    ] = None,
    retries: Annotated[
        int | None, typer.Option("--retries", metavar="N", help="After the first attempt.", rich_help_panel=_HOW)
    ] = None,
    job_id: Annotated[
        str | None, typer.Option("--job-id", metavar="ID", help="An id of your choice.", rich_help_panel=_HOW)
    ] = None,
    idempotency_key: Annotated[
        str | None,
        typer.Option("--idempotency-key", metavar="K", help="A repeat makes no second job.", rich_help_panel=_HOW),
    ] = None,
    label: Annotated[
        list[str] | None, typer.Option("--label", metavar="K=V", help="May be repeated.", rich_help_panel=_HOW)
    ] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait for the end; exit 0 on SUCCESS only.")] = False,
    timeout_wait: Annotated[
        str | None, typer.Option("--timeout-wait", metavar="D", help="Wait no longer than this: 30s.")
    ] = None,
    as_json: JsonFlag = False,
    url: UrlOption = None,
    token_file: TokenFileOption = None,
    data: DataOption = None,
) -> None:
    """Submit a job: a task or a shell command; now, at a time, or again and again. Prints the job's id."""
    fields: dict[str, Any] = {
        "task": task,
        "command": command_line,
        "payload": payload_of(payload, params or []),
        "schedule": "manual" if manual else None,
        "at": at,
        "every": every,
        "cron": cron,
        "timezone": timezone,
        "name": name,
        "queue": queue,
        "priority": priority,
        "timeout": timeout,
        "retries": retries,
        "job_id": job_id,
        "idempotency_key": idempotency_key,
        "labels": labels_of(label or []),
    }
    with connect(url, token_file, data) as client:
        handle = client.submit(**fields)
        if wait:
            if not as_json:
                say(f"job {handle.job_id}")
            raise typer.Exit(wait_and_show(client, handle, timeout=timeout_wait, as_json=as_json))
    if as_json:
        show_json({"job_id": handle.job_id})
    else:
        show_line(handle.job_id)


def payload_of(text: str | None, params: list[str]) -> dict[str, Any] | None:
    """The payload from --payload or from key=value pairs."""
    import msgspec

    from mainspring.domain.errors import InvalidInput

    if text is None:
        pairs = [_pair(param, "payload") for param in params]
        return {key: _value(value) for key, value in pairs} or None
    if params:
        raise InvalidInput("--payload and key=value both give parameters", field="payload", hint="use one of them")
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except msgspec.MsgspecError as error:
        raise InvalidInput(
            f"--payload is not a JSON object: {error}", field="payload", hint="""such as '{"region": "eu"}'"""
        ) from None


def labels_of(labels: list[str]) -> dict[str, str] | None:
    return dict(_pair(label, "labels") for label in labels) or None


def _pair(text: str, field: str) -> tuple[str, str]:
    from mainspring.domain.errors import InvalidInput

    key, equals, value = text.partition("=")
    if not equals or not key:
        raise InvalidInput(f"{text!r} is not key=value", field=field, hint="such as name=you")
    return key, value


def _value(text: str) -> Any:
    import msgspec

    try:
        return msgspec.json.decode(text)
    except msgspec.MsgspecError:
        return text
