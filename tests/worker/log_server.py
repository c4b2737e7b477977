"""The other end for a log shipper under test: keeps logs by the rules of the wire module, and fails when told to."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Literal, Self
from uuid import UUID

import msgspec

from mainspring.wire.logs import LogChunk, LogReceipt, LogShipment

Fault = Literal["drop the answer", "503", "422", "401"]
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(LogShipment).decode


class LogServer:
    def __init__(self) -> None:
        self.logs: dict[tuple[UUID, int], bytes] = {}
        self.chunks: list[LogChunk] = []
        self.requests = 0
        self.refused: set[UUID] = set()
        self.not_taken: set[UUID] = set()  # a shipment with output of these is answered 422
        self.faults: deque[Fault] = deque()
        self.worker_ids: set[UUID] = set()
        self.log_store_down = False
        self.open = asyncio.Event()
        self.open.set()
        self.arrived = asyncio.Event()
        self._writers: set[asyncio.StreamWriter] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for writer in self._writers:
            writer.close()

    def ended(self, run_id: UUID) -> list[LogChunk]:
        return [chunk for chunk in self.chunks if chunk.run_id == run_id and chunk.end]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                assert head.startswith(b"POST /v1/exchange/logs HTTP/1.1\r\n")
                length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
                body = await reader.readexactly(length)
                self.requests += 1
                self.arrived.set()
                await self.open.wait()
                status, answer = self._answer(body)
                if status == 0:
                    break
                writer.write(b"HTTP/1.1 %d X\r\nContent-Length: %d\r\n\r\n%b" % (status, len(answer), answer))
        except (asyncio.IncompleteReadError, ConnectionResetError):
            pass
        finally:
            writer.close()

    def _answer(self, body: bytes) -> tuple[int, bytes]:
        fault = self.faults.popleft() if self.faults else None
        if fault in ("503", "422", "401"):
            return int(fault), b"{}"
        shipment = _decode(body)
        if any(chunk.data and chunk.run_id in self.not_taken for chunk in shipment.chunks):
            return 422, b"{}"
        if self.log_store_down and any(chunk.data for chunk in shipment.chunks):
            problem = {"type": "", "title": "", "status": 503, "code": "log_store_down", "detail": "disk full"}
            return 503, _encode(problem)
        receipt = self._keep(shipment)
        return (0, b"") if fault == "drop the answer" else (200, _encode(receipt))

    def _keep(self, shipment: LogShipment) -> LogReceipt:
        self.worker_ids.add(shipment.worker_id)
        receipt = LogReceipt()
        for chunk in shipment.chunks:
            key = (chunk.run_id, chunk.fence)
            if chunk.run_id in self.refused:
                receipt.fenced.append(chunk.run_id)
                continue
            kept = self.logs.get(key, b"")
            if chunk.offset > len(kept):
                receipt.gaps.append(chunk.run_id)
                continue
            assert kept[chunk.offset : chunk.offset + len(chunk.data)] in (b"", chunk.data)
            if chunk.offset + len(chunk.data) >= len(kept):
                self.logs[key] = kept[: chunk.offset] + chunk.data
                self.chunks.append(chunk)
            receipt.stored += 1
        return receipt
