"""Real brokers for tests: each is a process with a folder of its own, which can be killed and started again."""

from __future__ import annotations

import os
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
from mainspring.kernel.parent_death import die_with_parent

_START = 60.0


class BrokerProcess:
    """`argv`: the command, in which {port} and {folder} are filled in."""

    def __init__(self, argv: list[str], folder: Path) -> None:
        self.port = free_port()
        self.folder = folder
        self.environment: dict[str, str] = {}
        self._argv = [part.format(port=self.port, folder=folder) for part in argv]
        self._child: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with (self.folder / "broker.log").open("ab") as log:
            self._child = subprocess.Popen(
                self._argv,
                env={**os.environ, **self.environment},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=die_with_parent(signal.SIGKILL),
            )
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
            os.killpg(self._child.pid, signal.SIGKILL)
            self._child.wait()
            self._child = None


@contextmanager
def a_broker(argv: list[str] | None) -> Iterator[BrokerProcess]:
    """None: there is no process."""
    folder = Path(tempfile.mkdtemp(prefix="ms-broker-", dir="/tmp"))
    broker = BrokerProcess(argv or [], folder)
    names = None
    try:
        if argv == RABBITMQ_ARGV:
            names = _names_of_erlang(broker)
        if argv is not None:
            broker.start()
        yield broker
    finally:
        broker.kill()
        if names is not None:
            names.kill()
            names.wait()
        shutil.rmtree(folder, ignore_errors=True)


def _names_of_erlang(broker: BrokerProcess) -> subprocess.Popen[bytes]:
    """The name service of Erlang on a port of its own. Otherwise RabbitMQ starts one, which outlives it."""
    names, distribution = free_port(), free_port()
    broker.environment = {
        "HOME": str(broker.folder),
        "ERL_EPMD_PORT": str(names),
        "RABBITMQ_NODENAME": f"ms{broker.port}@localhost",
        "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
        "RABBITMQ_NODE_PORT": str(broker.port),
        "RABBITMQ_DIST_PORT": str(distribution),
        "RABBITMQ_BASE": str(broker.folder),
        "RABBITMQ_MNESIA_BASE": str(broker.folder / "data"),
        "RABBITMQ_LOG_BASE": str(broker.folder / "log"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(broker.folder / "plugins"),
        "RABBITMQ_CONFIG_FILE": str(broker.folder / "rabbitmq"),
        "RABBITMQ_PID_FILE": str(broker.folder / "pid"),
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "+S 1:1",
    }
    (broker.folder / "plugins").write_text("[].\n")
    return subprocess.Popen(["epmd", "-address", "127.0.0.1", "-port", str(names)], stdin=subprocess.DEVNULL)


REDIS = shutil.which("redis-server")
# It answers after the data are on the disk, so a kill loses nothing that it has acknowledged.
REDIS_ARGV = [
    REDIS or "redis-server", "--port", "{port}", "--dir", "{folder}", "--appendonly", "yes", "--appendfsync", "always",
    "--save", "", "--bind", "127.0.0.1",
]  # fmt: skip
_NATS = Path(sys.executable).parent / "nats-server"
NATS_ARGV = [str(_NATS), "-a", "127.0.0.1", "-p", "{port}", "-js", "-sd", "{folder}/data"]
# The script of Debian changes the user; this is the one that it calls.
RABBITMQ = shutil.which("rabbitmq-server", path="/usr/lib/rabbitmq/bin:/usr/local/sbin:/opt/rabbitmq/sbin")
RABBITMQ_ARGV = [RABBITMQ or "rabbitmq-server"]
