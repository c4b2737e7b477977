"""A real server with a real worker, for tests: `mainspring up` in a folder of its own, with the embedded PostgreSQL."""

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
from typing import TYPE_CHECKING, Any

from mainspring.domain.errors import MainspringError, Unavailable
from mainspring.kernel.config import TOKEN_FILE_NAME
from mainspring.kernel.parent_death import die_with_parent
from mainspring.sdk.client.async_client import AsyncClient
from mainspring.sdk.client.client import Client

if TYPE_CHECKING:
    from mainspring.sdk.app.app import Mainspring

_MAINSPRING = (sys.executable, "-P", "-m", "mainspring")
_PATIENCE = 60.0  # seconds until the first answer, on a machine that is busy
_DECLARING = 20.0  # seconds until its schedules exist, on a machine that is busy
_END = 40.0  # seconds for runs that are drained
_POLL = 0.02
_SHOWN = 3000  # characters of the log, if it does not start


class TestServer:
    """What a test uses. url, token: of the server. client, async_client: clients of it, as the application has them
    inside the test."""

    __test__ = False  # pytest collects classes whose names begin like this

    def __init__(self, url: str, token: str) -> None:
        self.url = url
        self.token = token
        self.client = Client(url, token)
        self.async_client = AsyncClient(url, token)


class RealServer:
    """The processes of a test session. They start with the first application."""

    def __init__(self) -> None:
        self._folder: Path | None = None
        self._processes: list[subprocess.Popen[bytes]] = []
        self._apps: dict[str, str] = {}  # the names of the workers
        self._url = ""

    @contextmanager
    def serving(self, app: Mainspring | str) -> Iterator[TestServer]:
        """A worker runs the tasks of this application, and the application submits to the server inside the block.
        `app` is the application, or its name as in `--app`."""
        path = app if isinstance(app, str) else import_path(app)
        self._ensure(path)
        server = TestServer(self._url, self._token())
        try:
            if not isinstance(app, str):
                self._wait_for_declared(app, server.client)
            if isinstance(app, str):
                yield server
            else:
                with app.speaking_to(server.client, server.async_client):
                    yield server
        finally:
            server.client.close()

    def close(self) -> None:
        """End all processes, and remove their data."""
        for process in self._processes:
            process.send_signal(signal.SIGTERM)
        for process in self._processes:
            try:
                process.wait(_END)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._processes.clear()
        self._apps.clear()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    def _ensure(self, path: str) -> None:
        if path in self._apps:
            return
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="ms-test-"))
            port = _free_port()
            self._url = f"http://127.0.0.1:{port}"
            self._start("up", "--port", str(port), "--app", path)
            self._wait(self._answers)
            self._apps[path] = ""
        else:
            self._apps[path] = f"worker-{len(self._apps) + 1}"
            self._start("worker", "--app", path, "--name", self._apps[path])
        with Client(self._url, self._token()) as client:
            self._wait(lambda: _has_worker(client, self._apps[path]))

    def _start(self, verb: str, *options: str) -> None:
        folder = self._data
        folder.mkdir(exist_ok=True)
        environment = {name: value for name, value in os.environ.items() if not name.startswith("MAINSPRING_")}
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
        with self._log.open("ab") as log:
            self._processes.append(
                subprocess.Popen(
                    [*_MAINSPRING, verb, "--data", str(folder), *options],
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    preexec_fn=die_with_parent(signal.SIGTERM),
                )
            )

    def _wait(self, done: Any) -> None:
        until = time.monotonic() + _PATIENCE
        while not done():
            ended = next((process for process in self._processes if process.poll() is not None), None)
            if ended is not None or time.monotonic() > until:
                said = self._log.read_text(errors="replace")[-_SHOWN:]
                self.close()
                raise Unavailable(f"the server for tests does not start; it said:\n{said}")
            time.sleep(_POLL)

    def _answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", int(self._url.rpartition(":")[2])), timeout=1.0):
                return (self._data / TOKEN_FILE_NAME).exists()
        except OSError:
            return False

    def _wait_for_declared(self, app: Mainspring, client: Client) -> None:
        """The worker creates the schedules and workflows of its application when it has registered. One that the server
        refuses is in the log of the worker, and is not waited for."""
        missing = {*app.workflows, *(schedule.job_id for schedule in app.schedules)}
        until = time.monotonic() + _DECLARING
        while missing and time.monotonic() < until:
            missing -= {job.job_id for job in client.all_jobs(declared_by=app.name)}
            if missing:
                time.sleep(_POLL)

    def _token(self) -> str:
        return (self._data / TOKEN_FILE_NAME).read_text().strip()

    @property
    def _data(self) -> Path:
        assert self._folder is not None
        return self._folder / "data"

    @property
    def _log(self) -> Path:
        assert self._folder is not None
        return self._folder / "log"


def import_path(app: Mainspring) -> str:
    """How `--app` names this application: the module that made it, and the variable there."""
    namespace = app.namespace
    variable = next((name for name, value in namespace.items() if value is app), None)
    if variable is None or namespace["__name__"] == "__main__":
        raise ValueError(
            "a worker imports the application in a process of its own: assign it to a variable of a module, or pass "
            "mainspring_server its name, such as 'shop:app'"
        )
    return f"{namespace['__name__']}:{variable}"


def _has_worker(client: Client, name: str) -> bool:
    """Whether the worker has registered. name: "" for the one of `up`."""
    try:
        return any(not name or worker.name == name for worker in client.workers().workers)
    except MainspringError:
        return False


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port
