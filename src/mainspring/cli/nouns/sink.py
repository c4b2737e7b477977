"""`mainspring sink`"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from mainspring.cli.connect import JsonFlag, Server
from mainspring.cli.listing import Listing, ListOptions, PageCursor, PageLimit, more_pages, show_list, with_list_options
from mainspring.cli.noun import Noun
from mainspring.cli.screen import show_fields, show_json, show_line
from mainspring.cli.settings_json import read_secret, read_settings
from mainspring.cli.table import Column

if TYPE_CHECKING:
    from mainspring.sdk.client.client import Client
    from mainspring.wire.sinks import SinkView

noun = Noun("sink", "Sinks: where changes of jobs and runs are sent.", default="show")
_COLUMNS = (
    Column("SINK", least=12), Column("KIND", rank=1), Column("STATE"), Column("WAITING"), Column("LAG", rank=1),
    Column("SENT", rank=2), Column("DROPPED", rank=2), Column("ERROR", rank=3),
)  # fmt: skip
NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The name of the sink.")]


@noun.verb("list", "mainspring sink list", "mainspring sink list --json")
@with_list_options
def list_(limit: PageLimit = 50, cursor: PageCursor = None, *, options: ListOptions) -> None:
    """List sinks, and how far each is."""

    def read(client: Client) -> Listing:
        page = client.sinks(limit=limit, cursor=cursor)
        return Listing(
            page,
            _COLUMNS,
            lambda _: [
                (one.name, one.kind, _state(one), str(one.waiting), _lag(one), str(one.sent), str(one.dropped),
                 one.error or "") for one in page.sinks
            ],
            "no sinks; create one with mainspring sink set",
            more_pages(page.next),
        )  # fmt: skip

    show_list(options, read)


def _state(one: SinkView) -> str:
    return "paused" if one.paused else "failing" if one.failures else "ok"


def _lag(one: SinkView) -> str:
    return "" if one.lag_s is None else f"{one.lag_s:.0f} s"


@noun.verb("show", "mainspring sink show lake", "mainspring sink show lake --json")
def show(server: Server, name: NameArgument, as_json: JsonFlag = False) -> None:
    """Show a sink, how far it is, and its last error. Values of secret fields are not shown."""
    with server.connect() as client:
        _show(client.sink(name), as_json=as_json)


def _show(view: SinkView, *, as_json: bool) -> None:
    if as_json:
        show_json(view)
        return
    labels = ", ".join(f"{name}={value}" for name, value in view.labels.items())
    show_fields(
        [
            ("sink", view.name), ("kind", view.kind), ("url", view.url), ("topic", view.topic),
            ("exchange", view.exchange), ("user", view.user),
            ("batch", None if view.batch is None else str(view.batch)),
            ("description", view.description), ("version", str(view.version)), ("state", _state(view)),
            ("changes", ", ".join(view.on) or "all"), ("queue", view.queue), ("task", view.task), ("job", view.job),
            ("labels", labels or None), ("secrets", ", ".join(view.secrets) or None), ("position", str(view.position)),
            ("waiting", str(view.waiting)), ("lag", _lag(view) or None), ("sent", str(view.sent)),
            ("dropped", str(view.dropped)), ("error", view.error),
        ]
    )  # fmt: skip


@noun.verb(
    "set",
    "mainspring sink set w --kind webhook --address https://a.de --secret-file s",
    "mainspring sink set n --kind nats --address nats://n --topic t --on run.failed",
    "mainspring sink set bus --file sink.json",
)
def set_(
    server: Server,
    name: NameArgument,
    kind: Annotated[
        str | None, typer.Option("--kind", metavar="K", help="webhook, kafka, nats, rabbitmq or redis.")
    ] = None,
    address: Annotated[
        str | None, typer.Option("--address", metavar="URL", help="Where it is, without a user and a password.")
    ] = None,
    topic: Annotated[
        str | None, typer.Option("--topic", metavar="T", help="The topic, subject, stream or routing key.")
    ] = None,
    exchange: Annotated[str | None, typer.Option("--exchange", metavar="X", help="The exchange of RabbitMQ.")] = None,
    user: Annotated[str | None, typer.Option("--user", metavar="U", help="The user at the broker.")] = None,
    secret_file: Annotated[
        str | None,
        typer.Option(
            "--secret-file", metavar="F",
            help="A file with the key of a webhook or the password of a broker. - is stdin.",
        ),
    ] = None,
    on: Annotated[
        str | None, typer.Option("--on", metavar="C,D", help="Which changes, such as run.failed or job; else all.")
    ] = None,
    queue: Annotated[str | None, typer.Option("--queue", metavar="Q", help="Only those of this queue.")] = None,
    task: Annotated[str | None, typer.Option("--task", metavar="T", help="Only those of this task.")] = None,
    job: Annotated[str | None, typer.Option("--job", metavar="J", help="Only those of this job.")] = None,
    file: Annotated[
        str | None, typer.Option("--file", metavar="F", help="All settings as JSON, as in PUT /v1/sinks; - is stdin.")
    ] = None,
    if_version: Annotated[
        int | None, typer.Option("--if-version", metavar="N", help="Only if the sink has this version.")
    ] = None,
    as_json: JsonFlag = False,
) -> None:  # fmt: skip
    """Create a sink, or replace its settings. A secret that is left out keeps its value."""
    given: dict[str, Any] = {
        "kind": kind, "url": address, "topic": topic, "exchange": exchange, "user": user, "queue": queue, "task": task,
        "job": job, "on": None if on is None else [word.strip() for word in on.split(",") if word.strip()],
    }  # fmt: skip
    settings = read_settings(file, {field: value for field, value in given.items() if value is not None}, ("kind",))
    if secret_file is not None:
        settings["secret" if settings.get("kind") == "webhook" else "password"] = read_secret(secret_file)
    with server.connect() as client:
        view = client.set_sink(name, settings, if_version=if_version)
    _show(view, as_json=as_json)


@noun.verb("pause", "mainspring sink pause lake")
def pause(server: Server, name: NameArgument, as_json: JsonFlag = False) -> None:
    """Send nothing until the sink is resumed. Changes wait."""
    with server.connect() as client:
        view = client.pause_sink(name)
    _say(view, f"the sink {name} is paused", as_json=as_json)


@noun.verb("resume", "mainspring sink resume lake")
def resume(server: Server, name: NameArgument, as_json: JsonFlag = False) -> None:
    """Send what has waited."""
    with server.connect() as client:
        view = client.resume_sink(name)
    _say(view, f"the sink {name} is resumed; {view.waiting} changes wait", as_json=as_json)


@noun.verb("test", "mainspring sink test lake")
def test(server: Server, name: NameArgument, as_json: JsonFlag = False) -> None:
    """Send a test event to a sink, and say whether it was taken."""
    with server.connect() as client:
        done = client.test_sink(name)
    if as_json:
        show_json(done)
    elif done.sent:
        show_line(f"the sink {done.sink} took a test event in {done.seconds:g} s")
    else:
        show_line(f"the sink {done.sink} did not take a test event: {done.error}")
    if not done.sent:
        raise typer.Exit(1)


@noun.verb("delete", "mainspring sink delete lake")
def delete(server: Server, name: NameArgument, as_json: JsonFlag = False) -> None:
    """Delete a sink. What it has not sent yet is not sent."""
    with server.connect() as client:
        view = client.delete_sink(name)
    _say(view, f"the sink {view.name} is deleted", as_json=as_json)


def _say(view: SinkView, text: str, *, as_json: bool) -> None:
    if as_json:
        show_json(view)
    else:
        show_line(text)
