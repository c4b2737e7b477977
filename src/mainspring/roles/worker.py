"""The worker process: loads the application, offers its tasks and shell commands, and runs until it is stopped."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import uvloop

from mainspring import __version__
from mainspring.kernel.addresses import in_preferred_order, split_addresses
from mainspring.kernel.config import DEFAULT_TIMING, Timing
from mainspring.kernel.descriptors import raise_limit
from mainspring.kernel.garbage_collection import freeze_garbage_collection
from mainspring.kernel.logs import configure_logs, get_logger, logs_are_text
from mainspring.kinds.registry import problems_of_kinds
from mainspring.kinds.shell.sandbox.bubblewrap import Bubblewrap, NoSandbox
from mainspring.roles.schedules import keep_schedules
from mainspring.sdk.app.app import Mainspring
from mainspring.sdk.app.worker_hooks import STOP_SECONDS, HookFailed, HookStuck
from mainspring.sdk.tasks.declared import declared
from mainspring.worker.exchange.progress import ProgressReports
from mainspring.worker.exchange.server_client import ServerClient
from mainspring.worker.execution.application import load_app as load_app
from mainspring.worker.executors.registry import (
    build_executors,
    declared_kinds,
    dismiss_children,
    labels_of,
    shut_down,
    warm_up,
)
from mainspring.worker.output.capture import captured_streams
from mainspring.worker.output.log_shipper import LogShipper
from mainspring.worker.output.run_lines import RunLines
from mainspring.worker.processes.accounts import CommandAccounts
from mainspring.worker.processes.caps import Caps, default_caps, log_caps
from mainspring.worker.processes.isolation import Isolation, log_how_commands_run
from mainspring.worker.processes.launch import LaunchedWorker
from mainspring.worker.processes.watchdog_client import WatchdogClient
from mainspring.worker.worker import Worker

log = get_logger("worker")

_SHIPPING_TIMEOUT = 10.0
_CANNOT_START = 2  # the exit code of bad input (cli/exit_codes.py)
SANDBOX_LABEL = ("sandbox", "bubblewrap")
_MOST_DESCRIPTORS = 65_536  # a command needs three; processes that Python tasks start themselves inherit this limit


@dataclass(frozen=True)
class WorkerOptions:
    """server: one address, or several separated by commas. queues: None for those of the application. lease: None for
    that of the timing. app_token: with which the application's tasks submit jobs; None for the worker's token.
    sandbox: as it was found at the start. confine_all: every command runs in it. hidden: files and folders that
    isolated commands must not see. caps: what runs may use. kind_options: of kinds of task."""

    server: str
    token: str = field(repr=False)
    queues: tuple[str, ...] | None
    slots: int
    name: str | None
    app: str | None
    log_level: str
    log_format: str = "auto"
    weights: dict[str, int] | None = None
    labels: dict[str, str] = field(default_factory=dict)
    http_allow: str | None = None
    kind_options: dict[str, Any] = field(default_factory=dict)
    app_token: str | None = field(default=None, repr=False)
    sandbox: Bubblewrap | NoSandbox | None = None
    confine_all: bool = False
    accounts: CommandAccounts = field(default_factory=CommandAccounts)
    isolation: Isolation = field(default_factory=Isolation)
    hidden: Sequence[Path] = ()
    caps: Caps = field(default_factory=default_caps)
    lease: float | None = None
    timing: Timing = DEFAULT_TIMING
    prune_schedules: bool = False  # pause schedules that the application no longer declares
    ca: str | None = None  # the file of the authorities that are trusted, if not those of the system
    launched: LaunchedWorker | None = None  # None: this process is the one that the user started


def serve_worker(options: WorkerOptions) -> int:
    """Run `run_worker` on a new event loop; returns the exit code.

    If code of a task calls sys.exit() in its own asyncio task, the loop stops. The run of that task fails; the worker
    and its other runs go on.
    """
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        loop = runner.get_loop()
        serving = loop.create_task(run_worker(options))
        while True:
            try:
                return loop.run_until_complete(serving)
            except SystemExit as leaving:
                if serving.done():
                    raise
                log.warning("a subtask of a task called sys.exit(); the worker goes on", code=leaving.code)


async def run_worker(options: WorkerOptions) -> int:
    """Run until SIGTERM or SIGINT and the drain that follows; returns the exit code."""
    configure_logs(role="worker", log_format=options.log_format, level=options.log_level)
    descriptors = raise_limit(_MOST_DESCRIPTORS)
    log.detail("descriptors", limit=descriptors.now, commands=descriptors.before)
    app = load_app(options.app) if options.app else Mainspring()
    app_token = options.app_token or options.token
    if options.app and not (app.tasks or app.workflows or app.schedules or app.calendars or app.limits):
        log.warning("the application declares nothing: no task, workflow or schedule", app=options.app)
    app.adopt(options.server, app_token)  # tasks submit jobs to the server of this worker
    timing = options.timing
    progress = ProgressReports()
    launched = options.launched
    watchdog = WatchdogClient(
        orphans=None if launched is None else launched.orphans,
        hidden=options.hidden,
        caps=options.caps,
    )
    log_how_commands_run(options.accounts, options.isolation, options.hidden)
    log_caps(options.caps)
    pid = os.getpid() if launched is None else launched.launcher
    servers = servers_in_order(options.server, options.name, pid)
    if launched is not None:
        launched.record.servers = split_addresses(servers)
        launched.record.ca = options.ca
    shipping = ServerClient(servers, options.token, timeout=_SHIPPING_TIMEOUT, ca=options.ca)
    shipper = LogShipper(shipping)
    executors = build_executors(
        app.tasks,
        slots=options.slots,
        watchdog=watchdog,
        kill_grace=timing.kill_grace,
        open_log=shipper.open,
        note_progress=progress.note,
        app=options.app,
        server=options.server,
        token=app_token,
        sandbox=options.sandbox,
        confine_all=options.confine_all,
        accounts=options.accounts,
        isolated=options.isolation.namespaces,
        stop_seconds=STOP_SECONDS if app.hooks.stops else 0.0,
        caps=options.caps,
        options={"http_allow": options.http_allow, **options.kind_options},
    )
    for problem in problems_of_kinds():
        log.warning(problem)
    worker = Worker(
        # Two beats: an exchange may start every beat, and at most two wait for one server.
        ServerClient(servers, options.token, timeout=2 * timing.beat, beside=shipping, ca=options.ca),
        watchdog,
        executors,
        name=options.name or f"{socket.gethostname()}-{pid}",
        queues=options.queues or app.queues,
        slots=options.slots,
        weights=options.weights,
        labels=labels_of(executors) | offered_labels(options),
        task_limits={
            name: task.worker_concurrency for name, task in app.tasks.items() if task.worker_concurrency is not None
        },
        progress=progress,
        run_lines=RunLines() if logs_are_text() else None,
        version=__version__,
        signatures=declared(app.tasks.values()) | declared_kinds(),
        death_record=None if launched is None else launched.record,
        timing=timing,
        lease=options.lease,
        takes_all_tenants=options.confine_all,
        after_last_run=partial(dismiss_children, executors) if app.hooks.stops else None,
    )
    shipper.speaks_for(lambda: worker.incarnation)
    loop = asyncio.get_running_loop()
    starting = asyncio.create_task(app.hooks.start())
    stop = partial(_stop, starting, worker)
    if launched is not None:
        launched.on_stop(stop)
    else:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop)
    if (exit_code := await _started(starting)) is not None:
        await _run_stop_hooks(app, exit_code)
        await shipper.close()
        if launched is not None:
            launched.record.withdraw()
        return exit_code
    schedules = asyncio.create_task(
        keep_schedules(
            app,
            options.server,
            app_token,
            ca=options.ca,
            prune=options.prune_schedules,
            worker_id=lambda: None if worker.draining else worker.worker_id,
        )
        if options.app
        else asyncio.sleep(0)
    )
    freeze_garbage_collection()
    loop.call_soon(warm_up, executors)  # in the next turn of the loop: `run` starts the watchdog first
    try:
        with captured_streams(shipper.open):
            if not await worker.run():
                log.warning("a task does not end; exiting without it")
                await _run_stop_hooks(app, 0)
                os._exit(0)
        if worker.refused_token:
            return _CANNOT_START
    finally:
        shut_down(executors)
        await _run_stop_hooks(app, _CANNOT_START if worker.refused_token else 0)
        schedules.cancel()
        await shipper.close()
        with suppress(asyncio.CancelledError):
            await schedules
    return 0


def _stop(starting: asyncio.Task[None], worker: Worker) -> None:
    """Stop the worker, also while its start hooks run."""
    if not starting.done():
        starting.cancel()
    elif not starting.cancelled() and starting.exception() is None:
        worker.stop()


async def _started(starting: asyncio.Task[None]) -> int | None:
    """Wait for the start hooks. Returns the exit code if the worker must not start."""
    try:
        await asyncio.shield(starting)
    except HookFailed as error:
        log.error("the worker does not start", error=str(error), exc_info=error.__cause__)
        return _CANNOT_START
    except asyncio.CancelledError:
        if not starting.cancelled():
            raise
        log.info("stopped while the start hooks ran")
        return 0
    return None


async def _run_stop_hooks(app: Mainspring, exit_code: int) -> None:
    """Run the stop hooks. The worker ends even if one blocks the loop or ignores that it is cancelled: the process then
    exits with this code."""
    if not app.hooks.stops:
        return
    last_resort = threading.Timer(2 * STOP_SECONDS, _exit_without_hooks, (exit_code,))
    last_resort.daemon = True
    last_resort.start()
    failures = await app.hooks.stop()
    for failure in failures:
        log.warning("a stop hook failed", error=str(failure), exc_info=failure.__cause__)
    if not any(isinstance(failure, HookStuck) for failure in failures):
        last_resort.cancel()


def _exit_without_hooks(exit_code: int) -> None:
    log.warning("a stop hook does not end; exiting without it")
    os._exit(exit_code)


def offered_labels(options: WorkerOptions) -> dict[str, str]:
    """The labels of the worker. A worker that can build the sandbox has a label for it, which jobs can require."""
    if isinstance(options.sandbox, Bubblewrap):
        return dict([SANDBOX_LABEL]) | options.labels
    if options.sandbox is not None:
        log.info("no sandbox: runs that ask for one fail here", reason=str(options.sandbox), hint=options.sandbox.hint)
    return options.labels


def servers_in_order(servers: str, name: str | None, pid: int) -> str:
    """The servers in the order that this process prefers. It depends on the pid too: a pool may share one name."""
    return ",".join(in_preferred_order(split_addresses(servers), f"{name}/{socket.gethostname()}/{pid}"))
