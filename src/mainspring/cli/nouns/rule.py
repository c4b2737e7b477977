"""`mainspring rule`"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from mainspring.cli.connect import JsonFlag, Server
from mainspring.cli.listing import Listing, ListOptions, PageCursor, PageLimit, more_pages, show_list, with_list_options
from mainspring.cli.noun import Noun
from mainspring.cli.screen import show_fields, show_json, show_line
from mainspring.cli.settings_json import read_settings
from mainspring.cli.table import Column

if TYPE_CHECKING:
    from mainspring.sdk.client.client import Client
    from mainspring.wire.rules import RuleView

noun = Noun("rule", "Rules: who is told of what.", default="show")
_COLUMNS = (
    Column("RULE", least=12),
    Column("ON", rank=1),
    Column("OF", rank=2),
    Column("TO", rank=1),
    Column("MUTED UNTIL", rank=3),
)
NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The name of the rule.")]


@noun.verb("list", "mainspring rule list", "mainspring rule list --json")
@with_list_options
def list_(limit: PageLimit = 50, cursor: PageCursor = None, *, options: ListOptions) -> None:
    """List rules: who is told of what."""

    def read(client: Client) -> Listing:
        page = client.rules(limit=limit, cursor=cursor)
        return Listing(
            page,
            _COLUMNS,
            lambda _: [_row(one) for one in page.rules],
            "no rules; create one with mainspring rule set",
            more_pages(page.next),
        )

    show_list(options, read)


def _row(one: RuleView) -> tuple[str, ...]:
    muted = "" if one.muted_until is None else one.muted_until.isoformat(timespec="seconds")
    return one.name, ", ".join(one.on), scope_of(one), ", ".join(one.to), muted


def scope_of(one: RuleView) -> str:
    """What the rule is about, in words."""
    named = [(name, getattr(one, name)) for name in ("job", "task", "queue")]
    parts = [f"{name} {value}" for name, value in named if value is not None]
    parts += [f"{name}={value}" for name, value in one.labels.items()]
    return ", ".join(parts) or "everything"


@noun.verb("show", "mainspring rule show billing-fails", "mainspring rule show billing-fails --json")
def show(server: Server, name: NameArgument, as_json: JsonFlag = False) -> None:
    """Show a rule."""
    with server.connect() as client:
        _show(client.rule(name), as_json=as_json)


def _show(view: RuleView, *, as_json: bool) -> None:
    if as_json:
        show_json(view)
        return
    quiet, escalate = view.quiet, view.escalate
    show_fields(
        [
            ("rule", view.name), ("version", str(view.version)), ("description", view.description),
            ("on", ", ".join(view.on)), ("of", scope_of(view)), ("to", ", ".join(view.to)),
            ("group wait", f"{view.group_wait:g} s"), ("group interval", f"{view.group_interval:g} s"),
            ("repeat interval", f"{view.repeat_interval:g} s"),
            ("quiet", None if quiet is None else f"{quiet.start} to {quiet.end} {quiet.timezone}"),
            ("escalate", None if escalate is None else f"after {escalate.after} s to {', '.join(escalate.to)}"),
            ("muted until", None if view.muted_until is None else view.muted_until.isoformat()),
        ]
    )  # fmt: skip


@noun.verb(
    "set",
    "mainspring rule set bills --on failure,recovered --to oncall --queue bills",
    "mainspring rule set slow --on queue_behind --above 300 --to oncall",
    "mainspring rule set night --file rule.json",
)
def set_(
    server: Server,
    name: NameArgument,
    on: Annotated[
        str | None, typer.Option("--on", metavar="E,F", help="Events, such as failure,recovered,worker_lost.")
    ] = None,
    to: Annotated[str | None, typer.Option("--to", metavar="C,D", help="Channels.")] = None,
    job: Annotated[str | None, typer.Option("--job", metavar="ID", help="Only runs of this job.")] = None,
    task: Annotated[str | None, typer.Option("--task", metavar="T", help="Only runs of this task.")] = None,
    queue: Annotated[str | None, typer.Option("--queue", metavar="Q", help="Only runs of this queue.")] = None,
    label: Annotated[
        list[str] | None, typer.Option("--label", metavar="K=V", help="Only jobs with this label; can be repeated.")
    ] = None,
    repeat: Annotated[
        str | None, typer.Option("--repeat", metavar="D", help="How often it reminds of what has not recovered.")
    ] = None,
    above: Annotated[float | None, typer.Option("--above", metavar="N", help="The bound of a condition.")] = None,
    below: Annotated[float | None, typer.Option("--below", metavar="N", help="The bound of a condition.")] = None,
    over: Annotated[str | None, typer.Option("--over", metavar="D", help="The window of a condition.")] = None,
    description: Annotated[str | None, typer.Option("--description", metavar="TEXT", help="For people.")] = None,
    file: Annotated[
        str | None, typer.Option("--file", metavar="F", help="All settings as JSON, as in PUT /v1/rules; - is stdin.")
    ] = None,
    if_version: Annotated[
        int | None, typer.Option("--if-version", metavar="N", help="Only if the rule has this version.")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Create a rule, or replace its settings."""
    from mainspring.cli.option_values import pairs_of

    given: dict[str, Any] = {
        "on": None if on is None else _parts(on),
        "to": None if to is None else _parts(to),
        "job": job,
        "task": task,
        "queue": queue,
        "labels": pairs_of(label, "label") if label else None,
        "repeat_interval": repeat,
        "above": above,
        "below": below,
        "over": over,
        "description": description,
    }
    given = {field: value for field, value in given.items() if value is not None}
    settings = read_settings(file, given, ("on", "to"))
    with server.connect() as client:
        _show(client.set_rule(name, settings, if_version=if_version), as_json=as_json)


def _parts(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


@noun.verb("mute", "mainspring rule mute billing-fails --for 2h")
def mute(
    server: Server,
    name: NameArgument,
    duration: Annotated[str, typer.Option("--for", metavar="D", help="How long it tells nothing.")] = "1h",
    as_json: JsonFlag = False,
) -> None:
    """Tell nothing of a rule for some time."""
    with server.connect() as client:
        view = client.mute_rule(name, duration)
    if as_json:
        show_json(view)
    else:
        until = "" if view.muted_until is None else f" until {view.muted_until.isoformat(timespec='seconds')}"
        show_line(f"the rule {view.name} tells nothing{until}")


@noun.verb("unmute", "mainspring rule unmute billing-fails")
def unmute(server: Server, name: NameArgument, as_json: JsonFlag = False) -> None:
    """End the mute of a rule."""
    with server.connect() as client:
        view = client.unmute_rule(name)
    if as_json:
        show_json(view)
    else:
        show_line(f"the rule {view.name} tells again")


@noun.verb("delete", "mainspring rule delete billing-fails")
def delete(server: Server, name: NameArgument, as_json: JsonFlag = False) -> None:
    """Delete a rule."""
    with server.connect() as client:
        view = client.delete_rule(name)
    if as_json:
        show_json(view)
    else:
        show_line(f"the rule {view.name} is deleted")
