"""`mainspring worker`"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

import typer

from mainspring.cli.connect import (
    DataOption,
    HttpAllowOption,
    LogLevelOption,
    ReloadFlag,
    TokenFileOption,
    UrlOption,
    check_reload,
    checked_log_level,
)

EXAMPLES = (
    "mainspring worker --app examples.hello:app",
    "mainspring worker --server https://first:8700 --token-file /etc/mainspring/token --queues heavy=1,light=8",
    "mainspring worker --label gpu=a100 --label zone=eu",
    "mainspring worker --token-file pool-token --sandbox bubblewrap",
    "mainspring worker --lease 1m",
    "mainspring worker --server https://first:8700,https://second:8700 --ca ca.pem --token-file /etc/mainspring/token",
)
DEFAULT_SLOTS = 16

QueuesOption = Annotated[
    str | None,
    typer.Option(
        "--queues",
        metavar="A,B",
        help="Queues to take runs from. A=1,B=8 gives B eight times the slots of A.",
        show_default="default, and the queues of your tasks",
    ),
]


def command(
    queues: QueuesOption = None,
    slots: Annotated[
        int, typer.Option("--slots", min=1, max=100_000, help="How many runs execute at the same time.")
    ] = DEFAULT_SLOTS,
    name: Annotated[
        str | None, typer.Option("--name", help="Name of this worker.", show_default="host and process")
    ] = None,
    app: Annotated[
        str | None, typer.Option("--app", metavar="MODULE:APP", help="Your tasks, such as examples.hello:app.")
    ] = None,
    label: Annotated[
        list[str] | None,
        typer.Option(
            "--label", metavar="NAME=VALUE", help="A label that jobs can require, such as gpu=a100. Can be repeated."
        ),
    ] = None,
    reload: ReloadFlag = False,
    http_allow: HttpAllowOption = None,
    sandbox: Annotated[
        str | None,
        typer.Option(
            "--sandbox",
            metavar="S",
            help="bubblewrap: run every command in this sandbox, even if the job does not ask for it. For commands of "
            "people who must not read the worker's token.",
            show_default="the sandbox of each job",
        ),
    ] = None,
    lease: Annotated[
        str | None,
        typer.Option(
            "--lease",
            metavar="TIME",
            help="How long servers wait for this worker, if it is silent, before others get its runs: 7s to 5m. Runs "
            "that must not overlap wait for 75s at least. The worker ends its runs itself after 80 % of the time.",
            show_default="15s",
        ),
    ] = None,
    log_level: LogLevelOption = "info",
    url: UrlOption = None,
    token_file: TokenFileOption = None,
    data: DataOption = None,
) -> None:
    """Run jobs: shell commands, HTTP calls and the tasks of your application. Needs a server, but no database.

    On SIGTERM it takes no more runs, finishes those that it has started, and hands back the rest.
    """
    from mainspring.domain.errors import Unauthorized
    from mainspring.sdk.client.connection import find_connection
    from mainspring.worker.exchange.queue_weights import parse_queues

    names, weights = (None, None) if queues is None else parse_queues(queues, slots)
    labels = read_labels(label or ())
    confined = checked_sandbox(sandbox)
    wanted_lease = read_lease(lease)
    if reload:
        raise typer.Exit(_reloading(app))
    connection = find_connection(url, token_file=token_file, data=data)
    if connection.token is None:
        raise Unauthorized(f"no token found for {connection.url}", code="no_token")
    from mainspring.worker.executors.http.address_guard import AddressGuard
    from mainspring.worker.processes.launch import launch

    AddressGuard.from_text(http_allow)
    level = checked_log_level(log_level)
    launched = launch()  # after all options are checked: from here on this is the worker process
    # These imports are only for the worker process. The others do not need them.
    from mainspring.roles.worker import WorkerOptions, serve_worker

    options = WorkerOptions(
        server=connection.url,
        token=connection.token,
        queues=names,
        weights=weights,
        slots=slots,
        labels=labels,
        name=name,
        app=app,
        log_level=level,
        http_allow=http_allow,
        sandbox=confined,
        launched=launched,
        ca=connection.ca,
        lease=wanted_lease,
    )
    raise typer.Exit(serve_worker(options))


def read_labels(given: Iterable[str]) -> dict[str, str]:
    """Read labels from texts such as `gpu=a100` and `zone=eu`."""
    from mainspring.domain.errors import InvalidInput

    labels: dict[str, str] = {}
    for text in given:
        name, equals, value = (part.strip() for part in text.partition("="))
        if not (name and equals and value):
            raise InvalidInput(f"label: {text!r} is not NAME=VALUE", field="label", hint="write it like gpu=a100")
        if labels.setdefault(name, value) != value:
            raise InvalidInput(f"label: {name} is given twice", field="label", hint="give each label one value")
    return labels


def read_lease(text: str | None) -> float | None:
    """The seconds of --lease."""
    if text is None:
        return None
    from mainspring.domain.durations import parse_duration
    from mainspring.kernel.config import LONGEST_LEASE, SHORTEST_LEASE

    return parse_duration(text, "lease", least=SHORTEST_LEASE, most=LONGEST_LEASE)


def checked_sandbox(word: str | None) -> str | None:
    """The sandbox with this name. Raises an error if it is not installed."""
    if word is None:
        return None
    import os

    from mainspring.domain.errors import InvalidInput
    from mainspring.domain.intake.execution import read_sandbox
    from mainspring.worker.executors.shell.sandbox import WRAPPER, installed

    found = read_sandbox(word)
    if found is not None and not installed(os.environ):
        raise InvalidInput(f"{WRAPPER} is not installed", field="sandbox", hint="install it: apt install bubblewrap")
    return found


def _reloading(app: str | None) -> int:
    """Run the same command without --reload as a child process, and restart it when files change."""
    import asyncio
    import sys
    from pathlib import Path

    from mainspring.roles.reload import Reloader

    check_reload(app)
    arguments = [argument for argument in sys.argv[1:] if argument != "--reload"]
    return asyncio.run(Reloader([sys.executable, "-m", "mainspring", *arguments], Path.cwd()).run())
