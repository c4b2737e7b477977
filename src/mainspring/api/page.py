"""The dashboard: static files from inside the package, in front of the API. `/` leads there, and `/docs` to its page
that shows the API document.

The files are public: they hold no data. What they show comes from the API, with a session. Every address below /ui/
that is no file is answered with the shell, which evaluates the address itself. Where the package was built without the
page, /ui/ says how to get it.
"""

from __future__ import annotations

import asyncio
import gzip
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

import mainspring
from mainspring.api.compression import takes_gzip
from mainspring.api.web import ASGIApp, Receive, Scope, Send
from mainspring.wire.problems import PROBLEM_MEDIA_TYPE, Problem

FOLDER = Path(mainspring.__file__).parent / "ui" / "static"
_ROOT = "/ui"
_SHELL = "index.html"
_LEADS = {"/": b"/ui/", "/docs": b"/ui/docs", "/docs/": b"/ui/docs"}
_ASSETS = "assets/"  # their names have a digest of their content
_LEAST_COMPRESSED = 1000
_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".ico": "image/x-icon",
    ".json": "application/json",
    ".webmanifest": "application/manifest+json",
    ".txt": "text/plain; charset=utf-8",
}
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "worker-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types mainspring-worker"
)
_SAFE = (
    (b"content-security-policy", _POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
)


@dataclass(frozen=True, slots=True)
class _File:
    body: bytes
    compressed: bytes | None
    media_type: str
    cache: bytes


_NOT_BUILT = _File(
    b"""<!doctype html>
<html lang="en"><meta charset="utf-8"><title>Mainspring</title>
<h1>The dashboard was not built</h1>
<p>This Mainspring was installed without its page, because Node.js or the npm registry could not be reached then.
The API and the command line work as usual.</p>
<p>In a copy of the source, with Node.js 20.19 or newer: <code>make page</code>, then start the server again.
Or install the wheel of a release, which has the page.</p>
</html>
""",
    None,
    _TYPES[".html"],
    b"no-store",
)


def is_page(raw_path: bytes) -> bool:
    """Whether this path, as the client sent it, is one of the dashboard. Its answers have headers of their own."""
    path = raw_path.partition(b"?")[0]
    return path == b"/ui" or path.startswith(b"/ui/")


class DashboardPage:
    """An ASGI app around that of the API."""

    def __init__(self, app: ASGIApp, folder: Path = FOLDER) -> None:
        self._app = app
        self._folder = folder
        self._files: dict[str, _File] | None = None
        self._reading = asyncio.Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] in _LEADS and scope["method"] in ("GET", "HEAD"):
            await _answer(send, 307, [(b"location", _LEADS[scope["path"]])], b"")
        elif is_page(scope["raw_path"]):
            await self._serve(scope, send)
        else:
            await self._app(scope, receive, send)

    async def _serve(self, scope: Any, send: Send) -> None:
        if scope["method"] not in ("GET", "HEAD"):
            detail = f"{scope['method']} is not allowed here"
            await _refuse(send, 405, "method_not_allowed", detail, (b"allow", b"GET, HEAD"))
            return
        if scope["path"] == _ROOT:
            await _answer(send, 307, [(b"location", b"/ui/"), (b"cache-control", b"no-store"), *_SAFE], b"")
            return
        files = await self._read()
        name = scope["path"].removeprefix(f"{_ROOT}/")
        if name in files:
            await _send(scope, send, files[name])
        elif name.startswith(_ASSETS):  # of an older version; the shell in its place would be taken for a script
            await _refuse(send, 404, "not_found", "the dashboard has no such file")
        else:
            await _send(scope, send, files.get(_SHELL, _NOT_BUILT))

    async def _read(self) -> dict[str, _File]:
        """Once for each process: a page that is built later is found by the next one."""
        async with self._reading:
            if self._files is None:
                self._files = await asyncio.to_thread(_files_of, self._folder)
        return self._files


def _files_of(folder: Path) -> dict[str, _File]:
    if not (folder / _SHELL).is_file():
        return {}
    found = {}
    for path in folder.rglob("*"):
        media_type = _TYPES.get(path.suffix)
        if media_type is None or not path.is_file():
            continue
        name, body = path.relative_to(folder).as_posix(), path.read_bytes()
        text = len(body) >= _LEAST_COMPRESSED and path.suffix not in (".png", ".ico")
        cache = b"public, max-age=31536000, immutable" if name.startswith(_ASSETS) else b"no-store"
        found[name] = _File(body, gzip.compress(body, mtime=0) if text else None, media_type, cache)
    return found


async def _send(scope: Any, send: Send, file: _File) -> None:
    headers = [(b"content-type", file.media_type.encode()), (b"cache-control", file.cache), *_SAFE]
    body = file.body
    if file.compressed is not None:
        headers.append((b"vary", b"accept-encoding"))
        if takes_gzip(scope):
            headers.append((b"content-encoding", b"gzip"))
            body = file.compressed
    await _answer(send, 200, headers, body, head=scope["method"] == "HEAD")


async def _refuse(send: Send, status: int, code: str, detail: str, *headers: tuple[bytes, bytes]) -> None:
    problem = Problem(
        type=f"urn:mainspring:problem:{code}", title=code.replace("_", " "), status=status, code=code, detail=detail
    )
    told = [(b"content-type", PROBLEM_MEDIA_TYPE.encode()), (b"cache-control", b"no-store"), *_SAFE, *headers]
    await _answer(send, status, told, msgspec.json.encode(problem))


async def _answer(
    send: Send, status: int, headers: list[tuple[bytes, bytes]], body: bytes, *, head: bool = False
) -> None:
    length = (b"content-length", str(len(body)).encode())
    await send({"type": "http.response.start", "status": status, "headers": [*headers, length]})
    await send({"type": "http.response.body", "body": b"" if head else body, "more_body": False})
