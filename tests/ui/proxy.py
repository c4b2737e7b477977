"""A way to the server that a test can cut and mend, as if the server had stopped and come back."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress


class Proxy:
    """Passes the bytes of connections to `target` on. It always has the same port."""

    def __init__(self, target: tuple[str, int]) -> None:
        self._target = target
        self._open: set[socket.socket] = set()
        self._listener: socket.socket | None = None
        self.port = 0
        self.start()

    def start(self) -> None:
        listener = self._listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", self.port))
        listener.listen()
        self.port = listener.getsockname()[1]
        threading.Thread(target=self._accept, args=(listener,), daemon=True).start()

    def stop(self) -> None:
        """Cut all connections, and accept no more."""
        assert self._listener is not None
        for opened in (self._listener, *self._open):
            with suppress(OSError):
                opened.shutdown(socket.SHUT_RDWR)
            opened.close()
        self._open.clear()

    def _accept(self, listener: socket.socket) -> None:
        with suppress(OSError):
            while True:
                client, _ = listener.accept()
                server = socket.create_connection(self._target)
                self._open |= {client, server}
                for pair in ((client, server), (server, client)):
                    threading.Thread(target=self._pass_on, args=pair, daemon=True).start()

    def _pass_on(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65_536):
                sink.sendall(data)
        for one in (source, sink):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()
            self._open.discard(one)
