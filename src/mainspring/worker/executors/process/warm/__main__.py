"""Loads the application that its argument names, and serves the worker on descriptor 3."""

from __future__ import annotations

import faulthandler
import os
import resource
import socket
import sys
import traceback
from io import TextIOWrapper

from mainspring.domain.errors import MainspringError
from mainspring.kernel.garbage_collection import freeze_garbage_collection
from mainspring.sdk.app.app import Mainspring
from mainspring.sdk.app.worker_hooks import HookFailed
from mainspring.worker.execution.application import load_app
from mainspring.worker.executors.process.warm.child_loop import ChildLoop
from mainspring.worker.executors.process.warm.cleanup import adopt_orphans
from mainspring.worker.executors.process.warm.frames import Frames, Hello, Order, ReadyFrame, Unready, framed, orders
from mainspring.worker.executors.process.warm.interpreter import Interpreter
from mainspring.worker.executors.process.warm.own_use import cpu_seconds
from mainspring.worker.executors.process.warm.run_environment import resident_bytes

CHANNEL = 3
_CHUNK = 64 * 1024
_EXIT_GONE = 71


def main() -> None:
    os.environ.pop("PYTHONPATH", None)  # the worker set it for this process only; sys.path has it
    channel = socket.socket(fileno=CHANNEL)
    channel.set_inheritable(False)
    adopt_orphans()
    _prepare_for_crashes()
    heard = orders()
    hello = _hello(channel, heard)
    try:
        app = load_app(sys.argv[1])
    except MainspringError as error:
        channel.sendall(framed(Unready(str(error))))
        return
    if hello.server:
        app.adopt(hello.server, hello.token)
    loop = ChildLoop()
    try:
        loop.drive(app.hooks.start_steps())
    except HookFailed as error:
        _stop_hooks(app, loop)
        channel.sendall(framed(Unready(str(error))))
        return
    loop.keep()
    interpreter = Interpreter(app, channel, heard, loop)
    freeze_garbage_collection()
    channel.sendall(framed(ReadyFrame(resident_bytes(), cpu_seconds())))
    try:
        interpreter.serve()
        _stop_hooks(app, loop)
    except BaseException:  # noqa: BLE001 - the process ends in any case
        traceback.print_exc()
    # At once: the worker waits for this process or is gone, and threads that a task left must not delay the exit.
    os._exit(_EXIT_GONE)


def _stop_hooks(app: Mainspring, loop: ChildLoop) -> None:
    """The worker has dismissed this child. It ends it if this takes too long."""
    for failure in loop.drive(app.hooks.stop_steps()):
        sys.stderr.write(f"{failure}\n")


def _prepare_for_crashes() -> None:
    """A crash leaves its Python frames in the log of the run, and no core file in its folder. Both streams write to one
    pipe, line by line, and accept any text."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    faulthandler.enable()
    for stream in (sys.stdout, sys.stderr):
        assert isinstance(stream, TextIOWrapper)
        stream.reconfigure(encoding="utf-8", errors="backslashreplace", line_buffering=True)


def _hello(channel: socket.socket, heard: Frames[Order]) -> Hello:
    while data := channel.recv(_CHUNK):
        for order in heard.feed(data):
            assert isinstance(order, Hello)
            return order
    sys.exit(_EXIT_GONE)


if __name__ == "__main__":
    main()
