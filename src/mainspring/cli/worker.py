"""`mainspring worker`"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mainspring.cli.added_options import with_options
from mainspring.cli.caps import (
    MaxCpusOption,
    MaxMemoryOption,
    MaxProcessesOption,
    RunMaxCpuOption,
    RunMaxMemoryOption,
    RunMaxProcessesOption,
    read_caps,
)
from mainspring.cli.connect import (
    HttpAllowOption,
    LogFormatOption,
    LogLevelOption,
    ReloadFlag,
    Server,
    check_reload,
    checked_log_format,
    checked_log_level,
)
from mainspring.cli.task_options import check_kind_options, worker_options

if TYPE_CHECKING:
    from mainspring.kinds.shell.sandbox.bubblewrap import Bubblewrap, NoSandbox
    from mainspring.worker.processes.accounts import Account

EXAMPLES = (
    "mainspring worker --app examples.hello:app",
    "mainspring worker --token-file /etc/mainspring/token --queues heavy=1,light=8",
    "mainspring worker --label gpu=a100 --label zone=eu",
    "mainspring worker --sandbox bubblewrap --sandbox-read /opt/tools",
    "mainspring worker --run-as deploy --run-as-allow reports,backup",
    "mainspring worker --run-max-memory 2GiB --max-memory 50%",
    "mainspring worker --lease 1m",
    "mainspring worker --server https://first:8700,https://second:8700 --ca ca.pem",
)
DEFAULT_SLOTS = 16
ISOLATIONS = ("auto", "off")

QueuesOption = Annotated[
    str | None,
    typer.Option(
        "--queues",
        metavar="A,B",
        help="Queues to take runs from. A=1,B=8 gives B eight times the slots of A.",
        show_default="default, and the queues of your tasks",
    ),
]
RunAsOption = Annotated[
    str | None,
    typer.Option(
        "--run-as",
        metavar="USER",
        help="Run commands as this user. Only root can name another user than itself.",
        show_default="mainspring-run if the worker is root, and otherwise its own user",
    ),
]
IsolationOption = Annotated[
    str,
    typer.Option(
        "--process-isolation",
        metavar="WHEN",
        help="auto: each command has a pid namespace of its own where the machine allows it, so that none of its "
        "processes outlives it. Without root, sudo and other setuid programs then have no effect in commands. off: "
        "none.",
    ),
]
PruneFlag = Annotated[
    bool,
    typer.Option(
        "--prune", help="Pause schedules that the code of --app no longer declares. Declared again, they are resumed."
    ),
]


@with_options(worker_options(), after="http_allow")
def command(
    server: Server,
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
            help="bubblewrap: run every command in this sandbox, even if the job does not ask for it. A worker with a "
            "token for all tenants needs it.",
            show_default="the sandbox of each job",
        ),
    ] = None,
    sandbox_read: Annotated[
        list[str] | None,
        typer.Option(
            "--sandbox-read",
            metavar="PATH",
            help="A file or folder that sandboxed commands may read besides the system, such as /opt/tools. Can be "
            "repeated.",
        ),
    ] = None,
    run_as: RunAsOption = None,
    run_as_allow: Annotated[
        str | None,
        typer.Option(
            "--run-as-allow",
            metavar="A,B",
            help="Users that jobs may name in run_as.",
            show_default="none but the one that commands run as",
        ),
    ] = None,
    process_isolation: IsolationOption = "auto",
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
    app_token_file: Annotated[
        Path | None,
        typer.Option(
            "--app-token-file",
            metavar="FILE",
            help="File with the token with which the tasks of --app submit jobs, and which creates their schedules. "
            "Commands cannot use it.",
            show_default="the worker's own token",
        ),
    ] = None,
    run_max_memory: RunMaxMemoryOption = None,
    run_max_processes: RunMaxProcessesOption = None,
    run_max_cpu: RunMaxCpuOption = None,
    max_memory: MaxMemoryOption = None,
    max_processes: MaxProcessesOption = None,
    max_cpus: MaxCpusOption = None,
    prune: PruneFlag = False,
    log_level: LogLevelOption = "info",
    log_format: LogFormatOption = "auto",
    **kinds: Any,
) -> None:
    """Run jobs: shell commands, HTTP calls and the tasks of your application. Needs a server, but no database.

    On SIGTERM it takes no more runs, finishes those that it has started, and hands back the rest.
    """
    from mainspring.cli.settings_file import config_file
    from mainspring.domain.errors import Unauthorized
    from mainspring.sdk.client.connection import covered_paths, find_connection, private_paths, secrets_of
    from mainspring.worker.exchange.queue_weights import parse_queues

    names, weights = (None, None) if queues is None else parse_queues(queues, slots)
    labels = read_labels(label or ())
    confine_all = read_sandbox_option(sandbox)
    private = [
        *private_paths(server.token_file, server.data),
        *covered_paths(),
        *config_file(),
        *([app_token_file] if app_token_file else []),
        *check_kind_options(kinds),
    ]
    readable = check_sandbox_read(sandbox_read or (), private)
    check_isolation(process_isolation)
    wanted_lease = read_lease(lease)
    caps = read_caps(run_max_memory, run_max_processes, run_max_cpu, max_memory, max_processes, max_cpus)
    if reload:
        raise typer.Exit(_reloading(app))
    connection = find_connection(server.url, token_file=server.token_file, data=server.data)
    if connection.token is None:
        raise Unauthorized(f"no token found for {connection.url}", code="no_token")
    app_token = read_app_token(app, app_token_file)
    from mainspring.kinds.http.address_guard import AddressGuard
    from mainspring.worker.processes.accounts import command_accounts
    from mainspring.worker.processes.isolation import find_isolation
    from mainspring.worker.processes.launch import launch

    AddressGuard.from_text(http_allow)
    level, wanted_format = checked_log_level(log_level), checked_log_format(log_format)
    accounts = command_accounts(run_as, [name.strip() for name in (run_as_allow or "").split(",") if name.strip()])
    isolation = find_isolation(wanted=process_isolation == "auto")
    found = find_sandbox(readable, accounts.usual, needed=confine_all)
    hidden = secrets_of(private)
    launched = launch()  # after all options are checked: from here on this is the worker process
    # These imports are only for the worker process. The others do not need them.
    from mainspring.roles.worker import WorkerOptions, serve_worker

    options = WorkerOptions(
        server=connection.url,
        token=connection.token,
        app_token=app_token,
        queues=names,
        weights=weights,
        slots=slots,
        labels=labels,
        name=name,
        app=app,
        log_level=level,
        log_format=wanted_format,
        http_allow=http_allow,
        kind_options=kinds,
        sandbox=found,
        confine_all=confine_all,
        accounts=accounts,
        isolation=isolation,
        hidden=hidden,
        caps=caps,
        launched=launched,
        ca=connection.ca,
        lease=wanted_lease,
        prune_schedules=prune,
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


def read_app_token(app: str | None, file: Path | None) -> str | None:
    """The content of --app-token-file."""
    if file is None:
        return None
    from mainspring.domain.errors import InvalidInput
    from mainspring.sdk.client.connection import read_token

    if app is None:
        raise InvalidInput(
            "--app-token-file needs an application", field="app_token_file", hint="give --app MODULE:APP"
        )
    return read_token(file, "app_token_file")


def read_lease(text: str | None) -> float | None:
    """The seconds of --lease."""
    if text is None:
        return None
    from mainspring.domain.durations import parse_duration
    from mainspring.kernel.config import LONGEST_LEASE, SHORTEST_LEASE

    return parse_duration(text, "lease", least=SHORTEST_LEASE, most=LONGEST_LEASE)


def check_isolation(word: str) -> None:
    from mainspring.domain.errors import InvalidInput

    if word not in ISOLATIONS:
        raise InvalidInput(
            f"{word!r} is not a process isolation", field="process_isolation", expected=" or ".join(ISOLATIONS)
        )


def read_sandbox_option(word: str | None) -> bool:
    """Whether --sandbox names the sandbox. Raises an error if it names another."""
    from mainspring.domain.intake.execution import read_sandbox

    return word is not None and read_sandbox(word) is not None


def check_sandbox_read(given: Iterable[str], private: Iterable[Path]) -> list[Path]:
    """The paths of --sandbox-read. Raises an error if a sandboxed command could read one of the `private` paths of this
    worker."""
    import os

    from mainspring.kinds.shell.sandbox.read_paths import check_read_paths

    return check_read_paths(given, private, os.environ)


def find_sandbox(readable: list[Path], account: Account | None = None, *, needed: bool) -> Bubblewrap | NoSandbox:
    """The sandbox of this machine, built by the account of commands, or why there is none. Raises an error if it is
    needed."""
    import os

    from mainspring.domain.errors import InvalidInput
    from mainspring.kinds.shell.sandbox.bubblewrap import NoSandbox, tried_bubblewrap
    from mainspring.worker.execution.work_folders import WorkFolders

    folders = WorkFolders(shared=account is not None)
    try:
        return tried_bubblewrap(os.environ, readable, folders, account)
    except NoSandbox as reason:
        if needed:
            raise InvalidInput(f"cannot be built here: {reason}", field="sandbox", hint=reason.hint) from None
        return reason
    finally:
        folders.close()


def _reloading(app: str | None) -> int:
    """Run the same command without --reload as a child process, and restart it when files change."""
    import asyncio
    import sys

    from mainspring.roles.reload import Reloader

    check_reload(app)
    arguments = [argument for argument in sys.argv[1:] if argument != "--reload"]
    return asyncio.run(Reloader([sys.executable, "-P", "-m", "mainspring", *arguments], Path.cwd()).run())
