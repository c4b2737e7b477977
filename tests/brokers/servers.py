"""Real brokers for tests: each is a process with a folder of its own, which can be killed and started again."""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mainspring.bench.arena import free_port

_START = 60.0


class BrokerProcess:
    """`argv`: the command, in which {port} and {folder} are filled in."""

    def __init__(self, argv: list[str], folder: Path) -> None:
        self.port = free_port()
        self.folder = folder
        self._argv = [part.format(port=self.port, folder=folder) for part in argv]
        self._child: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with (self.folder / "broker.log").open("ab") as log:
            self._child = subprocess.Popen(self._argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        end = time.monotonic() + _START
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
                return
            except OSError:
                assert self._child.poll() is None, (self.folder / "broker.log").read_text()
                assert time.monotonic() < end, "the broker does not listen"
                time.sleep(0.02)

    def kill(self) -> None:
        if self._child is not None:
            self._child.send_signal(signal.SIGKILL)
            self._child.wait()
            self._child = None


@contextmanager
def a_broker(argv: list[str]) -> Iterator[BrokerProcess]:
    folder = Path(tempfile.mkdtemp(prefix="ms-broker-", dir="/tmp"))
    broker = BrokerProcess(argv, folder)
    try:
        broker.start()
        yield broker
    finally:
        broker.kill()
        shutil.rmtree(folder, ignore_errors=True)


REDIS = shutil.which("redis-server")
# It answers after the data are on the disk, so a kill loses nothing that it has acknowledged.
REDIS_ARGV = [
    REDIS or "redis-server", "--port", "{port}", "--dir", "{folder}", "--appendonly", "yes", "--appendfsync", "always",
    "--save", "", "--bind", "127.0.0.1",
]  # fmt: skip
_NATS = Path(sys.executable).parent / "nats-server"
NATS_ARGV = [str(_NATS), "-a", "127.0.0.1", "-p", "{port}", "-js", "-sd", "{folder}/data"]
