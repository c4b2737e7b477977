"""A fake server for tests of the command line: real HTTP on loopback with canned responses."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from mainspring.cli.main import main

Shown = tuple[int, str, str]


class _Http(ThreadingHTTPServer):
    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client may close its connection at any time. The default prints a traceback into the output of the test."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class CannedServer:
    """Responses by "METHOD path": bytes, or what becomes JSON. A list of responses is used one by one, and the last one
    is repeated."""

    def __init__(self) -> None:
        self.answers: dict[str, list[tuple[int, Any]]] = {}
        self.asked: list[tuple[str, str, Any]] = []
        handler = type("Handler", (_Handler,), {"canned": self})
        self._http = _Http(("127.0.0.1", 0), handler)
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.01})

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._http.server_address[1]}"

    def says(self, route: str, *bodies: Any, status: int = 200) -> None:
        self.answers[route] = [(status, body) for body in bodies]

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()


class _Handler(BaseHTTPRequestHandler):
    canned: CannedServer

    def _answer(self) -> None:
        length = int(self.headers.get("content-length") or 0)
        body = json.loads(self.rfile.read(length)) if length else None
        path, _, query = self.path.partition("?")
        self.canned.asked.append((f"{self.command} {path}", query, body))
        lacking = (404, {"type": "", "title": "", "status": 404, "code": "not_found", "detail": f"no {path}"})
        left = self.canned.answers.get(f"{self.command} {path}", [lacking])
        status, answer = left.pop(0) if len(left) > 1 else left[0]
        content = answer if isinstance(answer, bytes) else json.dumps(answer, ensure_ascii=False).encode()
        self.send_response(status)
        self.send_header("content-type", "text/plain" if isinstance(answer, bytes) else "application/json")
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _answer  # noqa: N815 - names of the standard library

    def log_message(self, *_: Any) -> None:
        """Log nothing, because tests read stderr."""


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[CannedServer]:
    canned = CannedServer()
    canned.start()
    monkeypatch.setenv("MAINSPRING_URL", canned.url)
    monkeypatch.setenv("MAINSPRING_TOKEN", "secret")
    monkeypatch.delenv("COLUMNS", raising=False)
    yield canned
    canned.stop()


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Shown]:
    """Run the command line in this process. Returns exit code, stdout and stderr. No command waits for a database."""
    monkeypatch.setenv("MAINSPRING_DATABASE_WAIT", "0")

    def run(*args: str) -> Shown:
        code = main(args)
        shown = capsys.readouterr()
        return code, shown.out, shown.err

    return run
