"""`mainspring server --processes N`: one port, and N supervised server processes.

Each place has sockets of its own (SO_REUSEPORT), between which the kernel divides new connections. This process binds
them and keeps them open. A process listens when it is up. When it is restarted, connections wait in its sockets.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from prometheus_client.multiprocess import mark_process_dead

from mainspring.domain.errors import InvalidInput
from mainspring.kernel import siblings
from mainspring.kernel.logs import configure_logs, get_logger
from mainspring.kernel.private_files import write_privately
from mainspring.kernel.siblings import SiblingPlace
from mainspring.roles.listening import addresses_of, require_free_port
from mainspring.roles.server import ServerOptions
from mainspring.roles.stop_signals import StopSignals
from mainspring.roles.supervisor import Program, Supervisor

log = get_logger("server")

MOST_PROCESSES = 256
_READY = 120.0  # seconds that a process may take until it is ready in a reload
_LOOK = 0.1


def process_count(text: str) -> int:
    """The value of `--processes`. Raises InvalidInput."""
    if text == "auto":
        return min(
            len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1, MOST_PROCESSES
        )
    if text.isascii() and text.isdigit() and 1 <= int(text) <= MOST_PROCESSES:
        return int(text)
    raise InvalidInput(
        f"{text!r} is no number of processes",
        field="processes",
        hint=f"give a number from 1 to {MOST_PROCESSES}, or auto for one for each core",
    )


async def run_processes(options: ServerOptions, count: int, argv: Sequence[str]) -> int:
    """Serve until SIGINT or SIGTERM. SIGHUP replaces the processes one after another. `argv` starts one of them."""
    configure_logs(role="server", log_format=options.log_format, level=options.log_level)
    write_privately()
    require_free_port(options.host, options.port)  # SO_REUSEPORT would share it with another server of the same user
    stop = StopSignals()
    reload = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGHUP, reload.set)
    with tempfile.TemporaryDirectory(prefix="mainspring-server-") as folder:
        processes = _Processes(options, count, argv, folder)
        try:
            code = await stop.unless_asked(processes.start())
            if code is None or code != 0:
                return code or 0
            log.info("serving with several processes", processes=count, host=options.host, port=options.port)
            await processes.keep(stop.asked, reload)
            return 0
        finally:
            loop.remove_signal_handler(signal.SIGHUP)
            await processes.stop()


@dataclass(slots=True)
class _Slot:
    """A place, and which of its two turns has the process now."""

    number: int
    sockets: list[socket.socket]
    turn: int = 0


class _Processes:
    def __init__(self, options: ServerOptions, count: int, argv: Sequence[str], folder: str) -> None:
        self._argv = tuple(argv)
        self._folder = folder
        self._supervisor = Supervisor()
        self._environment: Mapping[str, str] = dict(os.environ)
        self._slots = [_Slot(number, _listeners(options)) for number in range(count)]

    async def start(self) -> int:
        """Start the first process, which prepares the database, and then the others. Returns 0, or the exit code of the
        first one if it ends before it is ready: then something is wrong that the others would meet too."""
        first, *others = self._slots
        self._start(first)
        while not siblings.is_ready(self._folder, first.number, first.turn):
            if code := self._supervisor.exit_code(_name(first)):
                return code
            await asyncio.sleep(_LOOK)
        for slot in others:
            self._start(slot)
        return 0

    async def keep(self, stop: asyncio.Event, reload: asyncio.Event) -> None:
        """Until `stop`: replace the processes when `reload` is set."""
        stopping = asyncio.create_task(stop.wait())
        try:
            while not stop.is_set():
                asked = asyncio.create_task(reload.wait())
                await asyncio.wait({stopping, asked}, return_when=asyncio.FIRST_COMPLETED)
                asked.cancel()
                if reload.is_set() and not stop.is_set():
                    reload.clear()
                    await self._reload(stop)
        finally:
            stopping.cancel()

    async def stop(self) -> None:
        await self._supervisor.stop(together=True)
        for slot in self._slots:
            for listener in slot.sockets:
                listener.close()

    async def _reload(self, stop: asyncio.Event) -> None:
        log.info("replacing the processes one after another", processes=len(self._slots))
        for slot in self._slots:
            if not await self._replace(slot, stop):
                return
        log.info("the processes are replaced", processes=len(self._slots))

    async def _replace(self, slot: _Slot, stop: asyncio.Event) -> bool:
        """Start another process for this place, and end the old one when the other is ready. Returns False if it does
        not get ready: then the old one goes on."""
        old, slot.turn = _name(slot), 1 - slot.turn
        self._start(slot)
        give_up = asyncio.get_running_loop().time() + _READY
        while not siblings.is_ready(self._folder, slot.number, slot.turn):
            late = asyncio.get_running_loop().time() >= give_up
            if stop.is_set() or late or self._supervisor.exit_code(_name(slot)) is not None:
                if not stop.is_set():
                    log.error("a new process does not get ready, the old ones go on", process=_name(slot))
                await self._supervisor.end(_name(slot))
                siblings.forget(self._folder, slot.number, slot.turn)
                slot.turn = 1 - slot.turn
                return False
            await asyncio.sleep(_LOOK)
        await self._supervisor.end(old)
        self._clear(slot.number, 1 - slot.turn)
        return True

    def _start(self, slot: _Slot) -> None:
        listeners = tuple(listener.fileno() for listener in slot.sockets)
        number, turn = slot.number, slot.turn
        place = SiblingPlace(number, turn, len(self._slots), self._folder, listeners)
        self._supervisor.start(
            Program(
                name=_name(slot),
                argv=self._argv,
                env={**self._environment, **place.environment()},
                descriptors=listeners,
                before_start=lambda: self._clear(number, turn),
            )
        )

    def _clear(self, number: int, turn: int) -> None:
        """Forget the gauges and the readiness of a process that has ended. Its counters stay: a counter never falls."""
        siblings.forget(self._folder, number, turn)
        mark_process_dead(siblings.place_name(number, turn), self._folder)  # type: ignore[no-untyped-call]


def _name(slot: _Slot) -> str:
    return f"server {siblings.place_name(slot.number, slot.turn)}"


def _listeners(options: ServerOptions) -> list[socket.socket]:
    made = []
    for family, kind, protocol, address in addresses_of(options.host, options.port):
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listener.bind(address)
        made.append(listener)
    return made


def own_command() -> tuple[str, ...]:
    """The command that starts a process with the options of this one."""
    return (sys.executable, "-P", "-m", "mainspring", *sys.argv[1:])
