"""Every command of README, quickstart and the guides works: from an empty folder, in order, in one sitting.

What is replaced: the port 8700, so that the test does not disturb a Mainspring of the reader; names of other machines,
which stand for this one; and `https://example.com`, which stands for a small service of this test. `make run` is the
command of the Makefile without the installation. What is not run is listed here with its reason.
"""

from __future__ import annotations

import asyncio
import http.server
import re
import shutil
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import asyncpg
import pytest

from mainspring.store.embedded import EmbeddedPostgres
from tests.certificates import Authority
from tests.conftest import drop_database
from tests.docs.sitting import Shell, Step, environment_of, steps_of
from tests.processes.cluster import free_port

ROOT = Path(__file__).resolve().parents[2]
PAGES = (
    "README.md", "docs/quickstart.md", "docs/dead-letters.md", "docs/http-tasks.md", "docs/isolation.md",
    "docs/logs.md", "docs/workers.md", "docs/tls.md", "docs/operating.md", "docs/http-api.md",
)  # fmt: skip
NOT_RUN = {
    r"make test\b": "this is one of its tests",
    r"git clone\b": "this is the repository",
    r"make clients\b": "it installs generators",
    r"MAINSPRING_SCHEMA_EXAMPLES=": "this is a longer run of a test",
    r"mainspring server --pgbouncer\b": "tests/store/test_pgbouncer.py runs it",
}
OTHERS = re.compile(r"https://(?:server-1|first|third|a|b|mainspring\.example\.com)(?::8700)?\b")
_EMBEDDED = re.compile(r"(make run|mainspring up)\b")
_SERVER = re.compile(r"mainspring server\b")
_WORKER = re.compile(r"mainspring worker\b")
_LIVE = r"""mainspring worker list --json | grep -o '"state":"LIVE"' | wc -l"""


class Sitting:
    """The reader at one machine, who reads page after page."""

    def __init__(self, folder: Path, port: int, service: str) -> None:
        self.folder = folder
        self.port = port
        self._service = service
        self._workers = 0
        self._scheme = "http"
        self._serving: list[str] = []
        self._url = ""  # the commands find the server in the data folder
        (folder / ".venv").symlink_to(Path(sys.prefix))
        (folder / "examples").symlink_to(ROOT / "examples")
        self.shell = Shell(folder, environment_of(folder, folder / ".venv" / "bin"))

    def other_machine(self, folder: Path, database_url: str) -> Sitting:
        """A machine with the files that the pages about several machines name, and those that the reader wrote."""
        folder.mkdir()
        for written in self.folder.glob("*.py"):
            shutil.copy(written, folder)
        authority = Authority(folder)
        issued = authority.issue("localhost", "DNS:localhost")
        issued.cert.rename(folder / "chain.pem")
        issued.key.rename(folder / "key.pem")
        (folder / "database-url").write_text(database_url)
        other = Sitting(folder, free_port(), self._service)
        other.shell.run(f"export MAINSPRING_CA={authority.ca}")
        return other

    def copy_tokens(self) -> None:
        """The tokens that the reader has copied, or made as the page says."""
        self._url = f"MAINSPRING_URL={self._scheme}://localhost:{self.port} "
        token = f"{self._url}mainspring token add web --role worker > worker-token"
        code, said = self.shell.run(f"cp .mainspring/admin-token admin-token; cp admin-token token; {token}")
        assert code == 0, said

    def do(self, step: Step) -> None:
        if step.file is not None:
            (self.folder / step.file).write_text(step.text)
            return
        command = self._here(step.text)
        if not step.serves:
            code, said = self.shell.run(command)
            assert code == step.exit_code, f"{step.where}: {command}\nexit code {code}\n{said}"
            return
        if "--tls-cert" in command:
            self._scheme = "https"
        pid = self.shell.serve(command, self.folder / "served.log")
        if not _EMBEDDED.match(step.text):
            self._serving.append(pid)
        code, said = self.shell.run(self._until_ready(step.text))
        assert code == 0, f"{step.where}: {command}\n{said}\n{(self.folder / 'served.log').read_text()}"
        if _SERVER.match(step.text):
            self.copy_tokens()

    def _here(self, text: str) -> str:
        text = OTHERS.sub(f"{self._scheme}://localhost:8700", text.replace("https://example.com", self._service))
        text = text.replace("8700", str(self.port))
        if _EMBEDDED.match(text) or _SERVER.match(text):
            text = re.sub(r"\s+#.*$", "", text)
        if _EMBEDDED.match(text):
            text = text.replace("make run", "mainspring up --app examples.hello:app")
            return text + f" --port {self.port} --http-allow localhost"
        return text + f" --port {self.port}" if _SERVER.match(text) else text

    def _until_ready(self, text: str) -> str:
        if _WORKER.match(text):
            self._workers += 1
            return _until(f"[ $({self._url}{_LIVE}) -ge {self._workers} ]")
        self._workers += bool(_EMBEDDED.match(text))
        return _until(f"curl --silent --insecure --fail {self._scheme}://localhost:{self.port}/readyz")

    def turn_page(self) -> None:
        """End the workers and servers of the page. What `make run` has started goes on."""
        self.shell.end(self._serving)
        self._workers -= len(self._serving)
        self._serving.clear()


def _until(condition: str) -> str:
    """Waits for a minute at most."""
    return f"SECONDS=0; until {condition} >/dev/null; do [ $SECONDS -lt 60 ] || break; sleep 0.2; done; {condition}"


@pytest.fixture
def service() -> Iterator[str]:
    """What `https://example.com` stands for."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def _answer(self) -> None:
            self.rfile.read(int(self.headers.get("content-length") or 0))
            body = b'{"accepted": true}'
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST = do_DELETE = _answer  # noqa: N815 - names of the standard library

        def log_message(self, *_: object) -> None: ...

    server = http.server.ThreadingHTTPServer(("localhost", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://localhost:{server.server_address[1]}"
    server.shutdown()
    server.server_close()
    thread.join()


def is_run(step: Step) -> bool:
    return step.file is not None or not any(re.match(pattern, step.text) for pattern in NOT_RUN)


@pytest.fixture
def new_database(postgres: EmbeddedPostgres) -> Iterator[Callable[[], str]]:
    """Makes databases of a PostgreSQL that several machines reach."""
    made: list[str] = []

    async def create(name: str) -> None:
        admin = await asyncpg.connect(postgres.url("postgres"))
        await admin.execute(f"create database {name}")
        await admin.close()

    async def drop(name: str) -> None:
        admin = await asyncpg.connect(postgres.url("postgres"))
        await drop_database(admin, name)
        await admin.close()

    def make() -> str:
        made.append(f"machines_{uuid4().hex}")
        asyncio.run(create(made[-1]))
        return postgres.url(made[-1])

    yield make
    for name in made:
        asyncio.run(drop(name))


@pytest.mark.parametrize(
    "pages",
    [pytest.param(PAGES[:2], marks=pytest.mark.slow), pytest.param(PAGES, marks=pytest.mark.long)],
    ids=["the first pages", "every page"],
)
def test_every_command_of_the_documentation_works_in_one_sitting(
    tmp_path: Path, service: str, new_database: Callable[[], str], pages: tuple[str, ...]
) -> None:
    folder = tmp_path / "mainspring"
    folder.mkdir()
    own = Sitting(folder, free_port(), service)
    others: list[Sitting] = []
    try:
        for page in pages:
            here = own
            for step in filter(is_run, steps_of(ROOT / page)):
                if step.file is None and _SERVER.match(step.text):  # from here on the page is about several machines
                    here = own.other_machine(tmp_path / f"machine-{uuid4().hex[:6]}", new_database())
                    others.append(here)
                here.do(step)
            own.turn_page()
            while others:
                others.pop().shell.stop()
    finally:
        for sitting in (*others, own):
            sitting.shell.stop()
