"""The worker process: reads the application, offers its tasks and shell commands, and runs until told to stop."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
import traceback
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import import_module

from mainspring import __version__
from mainspring.domain.errors import InvalidInput, MainspringError, Unavailable
from mainspring.kernel.collector import spare_the_collector
from mainspring.kernel.config import DEFAULT_TIMING, Timing
from mainspring.kernel.lifecycle import backoff
from mainspring.kernel.logs import configure_logs, get_logger
from mainspring.sdk.app import Mainspring
from mainspring.sdk.client import AsyncClient
from mainspring.sdk.ensure_schedules import ensure_schedules
from mainspring.worker.executors import build_executors
from mainspring.worker.link import Link
from mainspring.worker.watchdog_link import WatchdogLink
from mainspring.worker.worker import Worker

log = get_logger("worker")


@dataclass(frozen=True)
class WorkerOptions:
    server: str
    token: str = field(repr=False)
    queues: tuple[str, ...]
    slots: int
    name: str | None
    app: str | None
    log_level: str
    timing: Timing = DEFAULT_TIMING


async def run_worker(options: WorkerOptions) -> int:
    """Run until SIGTERM or SIGINT and the drain that follows; gives the exit code."""
    configure_logs(role="worker", level=options.log_level)
    app = load_app(options.app) if options.app else Mainspring()
    app.adopt(options.server, options.token)  # a task that submits jobs does so where this worker gets its own
    timing = options.timing
    watchdog = WatchdogLink()
    worker = Worker(
        # Two beats: so one exchange may start every beat, and never are more than two in the air.
        Link(options.server, options.token, timeout=2 * timing.beat),
        watchdog,
        build_executors(app.tasks, slots=options.slots, watchdog=watchdog, kill_grace=timing.kill_grace),
        name=options.name or f"{socket.gethostname()}-{os.getpid()}",
        queues=options.queues,
        slots=options.slots,
        version=__version__,
        timing=timing,
    )
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, worker.stop)
    schedules = asyncio.create_task(_ensure_schedules(options, app))
    spare_the_collector()
    try:
        if not await worker.run():
            log.warning("a task would not end; leaving without it")
            os._exit(0)
    finally:
        schedules.cancel()
        with suppress(asyncio.CancelledError):
            await schedules
    return 0


def load_app(name: str) -> Mainspring:
    """The application that `module:attribute` names; modules are looked for in the current folder first."""
    module_name, colon, attribute = name.partition(":")
    if not (module_name and colon and attribute):
        raise InvalidInput(f"app: {name!r} is not of the form module:attribute", field="app", hint="such as hello:app")
    here = os.getcwd()  # noqa: PTH109 - sys.path takes text
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        module = import_module(module_name)
    except Exception as error:  # the module is the user's code, and may raise anything
        frames = traceback.format_tb(error.__traceback__, limit=-3)
        raise InvalidInput(
            f"app: cannot import {module_name}: {type(error).__name__}: {error}\n{''.join(frames)}".rstrip(),
            field="app",
            hint=f"modules are looked for in {here} and in the installed packages",
        ) from error
    app = getattr(module, attribute, None)
    if not isinstance(app, Mainspring):
        found = "nothing" if app is None else f"a {type(app).__name__}"
        raise InvalidInput(
            f"app: {name} is {found}, not a Mainspring application", field="app", hint="app = Mainspring()"
        )
    return app


async def _ensure_schedules(options: WorkerOptions, app: Mainspring) -> None:
    """Beside the work and again until it is done: neither waits for the other."""
    if not app.schedules:
        return
    async with AsyncClient(options.server, options.token) as client:
        failures = 0
        while True:
            try:
                log.info("schedules of the application", **await ensure_schedules(client, app))
                return
            except Unavailable as error:
                failures += 1
                log.warning("cannot ensure the application's schedules yet", error=str(error))
                await asyncio.sleep(backoff(failures))
            except MainspringError as error:
                log.error("the application's schedules were refused", error=str(error), field=error.field)
                return
