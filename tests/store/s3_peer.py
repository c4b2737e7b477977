"""The part of S3 that the log store uses, on loopback: put, get, list and delete objects in memory."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

BUCKET = "bucket"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    objects: dict[str, bytes]

    def do_PUT(self) -> None:
        self.objects[self._key()] = self._body()
        self._answer(200, headers={"ETag": '"1"'})

    def do_GET(self) -> None:
        query = parse_qs(urlsplit(self.path).query)
        if "list-type" in query:
            self._list(query["prefix"][0] if "prefix" in query else "")
        elif (data := self.objects.get(self._key())) is None:
            self._answer(404, b"<Error><Code>NoSuchKey</Code></Error>")
        else:
            headers = {"ETag": '"1"', "Last-Modified": "Sun, 15 Nov 2026 08:00:00 GMT"}
            if (wanted := re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("range") or "")) is None:
                self._answer(200, data, headers=headers)
                return
            part = data[int(wanted[1]) : int(wanted[2]) + 1]
            headers["Content-Range"] = f"bytes {wanted[1]}-{int(wanted[1]) + len(part) - 1}/{len(data)}"
            self._answer(206, part, headers=headers)

    def do_DELETE(self) -> None:
        self.objects.pop(self._key(), None)
        self._answer(204)

    def do_POST(self) -> None:
        """DeleteObjects."""
        keys = re.findall(r"<Key>(.*?)</Key>", self._body().decode())
        for key in keys:
            self.objects.pop(key, None)
        deleted = "".join(f"<Deleted><Key>{escape(key)}</Key></Deleted>" for key in keys)
        self._answer(200, f"<DeleteResult>{deleted}</DeleteResult>".encode())

    def _list(self, prefix: str) -> None:
        found = "".join(
            f"<Contents><Key>{escape(key)}</Key><Size>{len(data)}</Size><ETag>1</ETag>"
            "<LastModified>2026-11-15T08:00:00Z</LastModified></Contents>"
            for key, data in sorted(self.objects.items())
            if key.startswith(prefix)
        )
        body = f"<ListBucketResult><IsTruncated>false</IsTruncated>{found}</ListBucketResult>"
        self._answer(200, body.encode(), headers={"Content-Type": "application/xml"})

    def _key(self) -> str:
        return unquote(urlsplit(self.path).path).removeprefix(f"/{BUCKET}/")

    def _body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("content-length") or 0))

    def _answer(self, status: int, body: bytes = b"", headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Print nothing, because tests read stderr."""


@contextmanager
def s3_peer() -> Iterator[tuple[str, dict[str, bytes]]]:
    """The address, and the stored objects."""
    objects: dict[str, bytes] = {}
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"objects": objects}))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", objects
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
