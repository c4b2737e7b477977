"""A command as a child process that starts behind a gate, and the end of what it prints.

The child waits for a line on its stdin before it becomes the command. The watchdog is told of its process group first
and the line is written then; if the worker dies in between, the line never comes and the child leaves. So no command
ever runs that nobody would kill.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress

OUTPUT_KEPT = 8 * 1024
_GATE = 'read -r go || exit 125; exec "$@" </dev/null'
_CHUNK = 64 * 1024


async def start_behind_gate(argv: list[str], environ: dict[str, str], news: asyncio.Event) -> Child:
    """Start `argv` in a session and process group of its own; `news` is set when it exits."""
    gate_in, gate = os.pipe()
    try:
        output, output_in = os.pipe()
    except OSError:
        os.close(gate_in)
        os.close(gate)
        raise
    child = Child(gate, output, news)
    try:
        await asyncio.get_running_loop().subprocess_exec(
            lambda: child,
            "/bin/sh", "-c", _GATE, "mainspring", *argv,
            stdin=gate_in, stdout=output_in, stderr=output_in, start_new_session=True, env=environ,
        )  # fmt: skip
    except BaseException:
        child.close()
        raise
    finally:
        os.close(gate_in)
        os.close(output_in)
    return child


class Child(asyncio.SubprocessProtocol):
    """The output goes through a pipe of ours and not through asyncio's, which takes a child for alive while any process
    holds its pipe open."""

    def __init__(self, gate: int, output: int, news: asyncio.Event) -> None:
        self.group = 0
        self.exit_code: int | None = None
        self.output_bytes = 0
        self._gate = gate
        self._output = output
        self._news = news
        self._tail = bytearray()
        self._silent = asyncio.Event()
        self._transport: asyncio.SubprocessTransport | None = None
        os.set_blocking(output, False)
        asyncio.get_running_loop().add_reader(output, self._read)

    @property
    def output(self) -> str:
        """The last OUTPUT_KEPT bytes of stdout and stderr, as text that JSON and PostgreSQL take."""
        return self._tail[-OUTPUT_KEPT:].decode("utf-8", "replace").replace("\x00", "\ufffd")

    def open_gate(self) -> None:
        """Let the command begin."""
        with suppress(BrokenPipeError):  # killed meanwhile
            os.write(self._gate, b"go\n")
        self.shut_gate()

    def shut_gate(self) -> None:
        if self._gate >= 0:
            os.close(self._gate)
            self._gate = -1

    async def output_ended(self, timeout: float) -> None:
        """Returns when all output has been read, or after `timeout` seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await self._silent.wait()

    def close(self) -> None:
        self.shut_gate()
        self._stop_reading()
        if self._transport is not None:
            self._transport.close()

    # -- asyncio.SubprocessProtocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]
        self.group = transport.get_pid()  # type: ignore[attr-defined]

    def process_exited(self) -> None:
        assert self._transport is not None
        self.exit_code = self._transport.get_returncode()
        self._news.set()

    def _read(self) -> None:
        try:
            chunk = os.read(self._output, _CHUNK)
        except BlockingIOError:
            return
        if not chunk:
            self._stop_reading()
            return
        self.output_bytes += len(chunk)
        self._tail += chunk
        if len(self._tail) > _CHUNK:
            del self._tail[:-OUTPUT_KEPT]

    def _stop_reading(self) -> None:
        self._silent.set()
        if self._output >= 0:
            asyncio.get_running_loop().remove_reader(self._output)
            os.close(self._output)
            self._output = -1
