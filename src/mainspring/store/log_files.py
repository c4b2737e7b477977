"""Stores the bytes of logs in a folder, S3, Google Cloud Storage or Azure, through obstore.

A chunk is an object `{tenant}/{run}/{attempt}-{fence}/{offset}`. A writer with one fence cannot change objects of
another fence, and a chunk that is sent twice is the same object. Merged chunks are an object `.../{offset}-{end}`,
which no late chunk can overwrite. The table run_logs contains the valid length of each log.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import unquote, urlsplit
from uuid import UUID

import obstore
from obstore.exceptions import BaseError
from obstore.store import LocalStore, MemoryStore, from_url

from mainspring.domain.errors import InvalidInput, Unavailable
from mainspring.kernel.ids import uuid7
from mainspring.store.log_failures import LogFailures, first_line

if TYPE_CHECKING:
    from obstore.store import ObjectStore, RetryConfig

_SCHEMES = ("s3", "gs", "az")
_EXPECTED = "a folder, or s3://bucket/prefix, gs://bucket/prefix, az://account/container/prefix"
_FAILURES = (BaseError, OSError)
_A_MOMENT = 0.05
_DELETED_AT_ONCE = 500
_PUT_AT_ONCE = 8
_NAME = re.compile(r"(\d{15})(?:-(\d{15}))?")


class FolderChunk(NamedTuple):
    """Bytes of the log in `folder`, from `offset` on."""

    folder: str
    offset: int
    data: bytes


class LogKey(NamedTuple):
    tenant: int
    run_id: UUID
    fence: int


class Stored(NamedTuple):
    """One object of a log: the bytes from `offset` on. It is a single chunk, or several merged ones."""

    offset: int
    size: int
    merged: bool = False

    @property
    def end(self) -> int:
        return self.offset + self.size

    @property
    def name(self) -> str:
        return f"{self.offset:015d}-{self.end:015d}" if self.merged else f"{self.offset:015d}"


class LogFiles:
    def __init__(self, objects: ObjectStore, where: str) -> None:
        self._objects = objects
        self.where = where
        self._failures = LogFailures()
        self._putting = asyncio.Semaphore(_PUT_AT_ONCE)

    @classmethod
    def in_memory(cls) -> LogFiles:
        """A store in the memory of this process."""
        return cls(MemoryStore(), "memory")

    @property
    def folder(self) -> Path | None:
        """None if it is not on this machine."""
        local = self._objects
        return Path(local.prefix) if isinstance(local, LocalStore) and local.prefix is not None else None

    async def check(self) -> None:
        """Write and remove a test object. Raises InvalidInput if that fails."""
        probe = f"probe-{uuid7()}"
        try:
            await obstore.put_async(self._objects, probe, b"mainspring", use_multipart=False)
            await obstore.delete_async(self._objects, probe)
        except _FAILURES as error:
            raise _unusable(self.where, error) from error

    async def close(self) -> None:
        """Call it last. obstore's threads release Python objects shortly after an operation has returned. An
        interpreter that ends before that is aborted: 29 of 150 ended so without a pause, none after 20 ms."""
        await asyncio.sleep(_A_MOMENT)

    async def put_all(self, chunks: Sequence[FolderChunk]) -> None:
        """Store chunks of any number of logs, a few at a time."""
        await asyncio.gather(*map(self._put_in_turn, chunks))

    async def _put_in_turn(self, chunk: FolderChunk) -> None:
        async with self._putting:
            await self.put(*chunk)

    async def put(self, folder: str, offset: int, data: bytes) -> None:
        """Store a chunk atomically."""
        await self._put(f"{folder}/{Stored(offset, len(data)).name}", data)

    async def put_merged(self, folder: str, offset: int, data: bytes) -> Stored:
        """Store the bytes of several chunks durably. The chunks can be removed when this returns."""
        stored = Stored(offset, len(data), merged=True)
        path = f"{folder}/{stored.name}"
        await self._put(path, data)
        if isinstance(self._objects, LocalStore):
            assert self._objects.prefix is not None
            try:
                await asyncio.to_thread(_flush, Path(self._objects.prefix, path))
            except OSError as error:
                raise self._unavailable(error) from error
        return stored

    async def get(self, folder: str, offset: int) -> bytes | None:
        """The chunk that begins at `offset`, or None."""
        try:
            found = await obstore.get_async(self._objects, f"{folder}/{offset:015d}")
            return bytes(await found.bytes_async())
        except FileNotFoundError:
            return None
        except _FAILURES as error:
            raise self._unavailable(error) from error

    async def read(self, folder: str, stored: Stored, start: int, stop: int) -> bytes | None:
        """The log's bytes from `start` to `stop` from one object. None if the object no longer exists. Returns fewer
        bytes if the chunk was replaced by a shorter one."""
        if not stored.merged:
            data = await self.get(folder, stored.offset)
            return None if data is None else data[start - stored.offset : stop - stored.offset]
        try:
            found = await obstore.get_range_async(
                self._objects, f"{folder}/{stored.name}", start=start - stored.offset, end=stop - stored.offset
            )
            return bytes(found)
        except FileNotFoundError:
            return None
        except _FAILURES as error:
            raise self._unavailable(error) from error

    async def objects(self, folder: str) -> list[Stored]:
        """The objects of one log, in order. They can contain more than the valid length, and can overlap."""
        found = [_stored(path.rpartition("/")[2], size) async for path, size in self._under(folder)]
        return sorted(stored for stored in found if stored is not None)

    async def remove(self, folder: str, objects: Iterable[Stored]) -> None:
        await self._remove([f"{folder}/{stored.name}" for stored in objects])

    async def delete(self, folder: str) -> int:
        """Remove all objects under `folder`. Returns their number."""
        paths = [path async for path, _ in self._under(folder)]
        await self._remove(paths)
        return len(paths)

    async def _put(self, path: str, data: bytes) -> None:
        try:
            await obstore.put_async(self._objects, path, data, use_multipart=False)
        except _FAILURES as error:
            raise self._unavailable(error) from error

    async def _remove(self, paths: Sequence[str]) -> None:
        for start in range(0, len(paths), _DELETED_AT_ONCE):
            batch = paths[start : start + _DELETED_AT_ONCE]
            try:
                try:
                    await obstore.delete_async(self._objects, batch)
                except (
                    FileNotFoundError
                ):  # another server removes it too, and a local folder stops at the first missing file
                    for path in batch:
                        with suppress(FileNotFoundError):
                            await obstore.delete_async(self._objects, path)
            except _FAILURES as error:
                raise self._unavailable(error) from error

    def _unavailable(self, error: Exception) -> Unavailable:
        return self._failures.unavailable(error)

    async def _under(self, folder: str) -> AsyncIterator[tuple[str, int]]:
        try:
            async for page in obstore.list(self._objects, f"{folder}/", chunk_size=1000):
                for found in page:
                    yield found["path"], found["size"]
        except _FAILURES as error:
            raise self._unavailable(error) from error


def _stored(name: str, size: int) -> Stored | None:
    """Read an object's name. None if it is not an object of a log, or does not have the size in its name."""
    found = _NAME.fullmatch(name)
    if found is None:
        return None
    offset = int(found[1])
    if found[2] is None:
        return Stored(offset, size)
    return Stored(offset, size, merged=True) if offset + size == int(found[2]) else None


def folder_of(tenant: int, run_id: object, attempt: int, fence: int) -> str:
    return f"{tenant}/{run_id}/{attempt}-{fence}"


def key_of(folder: str) -> LogKey:
    tenant, run_id, which = folder.split("/")
    return LogKey(int(tenant), UUID(run_id), int(which.partition("-")[2]))


def open_log_files(where: str | Path) -> LogFiles:
    """Open the store at a path or URL. Raises InvalidInput if it is neither. Cloud credentials come from the usual
    environment variables."""
    text = str(where)
    parts = urlsplit(text) if "://" in text else None
    try:
        if parts is None:
            return LogFiles(_folder(Path(text)), text)
        if parts.scheme == "file":
            return LogFiles(_folder(Path(unquote(parts.path))), text)
        if parts.scheme in _SCHEMES:
            patience: RetryConfig = {"max_retries": 3, "retry_timeout": timedelta(seconds=10)}
            return LogFiles(from_url(text, retry_config=patience), text)
    except (*_FAILURES, ValueError) as error:
        raise _unusable(text, error) from error
    raise InvalidInput(f"{text!r} is not a log store", field="log_store", expected=_EXPECTED)


def _folder(path: Path) -> LocalStore:
    """Create the folder with access for its owner only, because output can contain secrets."""
    path = path.absolute()
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    return LocalStore(path, automatic_cleanup=True)


def _flush(path: Path) -> None:
    """Flush a file and its directory entry to disk."""
    for place in (path, path.parent):
        descriptor = os.open(place, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _unusable(where: str, error: Exception) -> InvalidInput:
    return InvalidInput(
        f"the log store {where} cannot be used: {first_line(error)}", code="log_store_unusable", field="log_store",
        expected=_EXPECTED, hint="check its address, its permissions and the credentials in the environment",
    )  # fmt: skip
