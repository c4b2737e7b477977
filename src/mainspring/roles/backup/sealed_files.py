"""The files of backups: compressed with gzip, and encrypted with AES-256-GCM if there is a key.

An encrypted file begins with a line that names its key. Then come chunks: the length in four bytes, and the chunk as
operations/secrets/sealing.py encrypts it. Each chunk is bound to the file's place, to its number, and to whether it is
the last one. So a file that is cut off, or stands in another's place, does not decrypt.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import struct
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from io import BufferedIOBase, RawIOBase
from pathlib import Path
from typing import IO, cast

from mainspring.domain.errors import Conflict, InvalidInput
from mainspring.operations.secrets.master_keys import key_id, keys_in
from mainspring.operations.secrets.sealing import Undecryptable, seal, unseal

CHUNK = 1024 * 1024
_HEAD = b"mainspring sealed 1 "
_KEY_ID = 16
_LENGTH = struct.Struct(">I")
_LARGEST = CHUNK + 64
_FASTEST = 1


class Keys:
    """The keys of backups, by id. The first one encrypts, all of them decrypt. Without keys nothing is encrypted."""

    def __init__(self, keys: Mapping[str, bytes] | None = None) -> None:
        self._keys = dict(keys or {})

    @classmethod
    def of_file(cls, path: Path | None) -> Keys:
        """Raises InvalidInput."""
        if path is None:
            return cls()
        try:
            found = keys_in(path.read_text(encoding="ascii"))
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidInput(f"the key file {path} cannot be read: {error}", field="key_file") from error
        if not found:
            raise InvalidInput(
                f"{path} has no key", field="key_file", hint="make one: mainspring secret new-key > FILE"
            )
        return cls({key_id(key): key for key in found})

    @property
    def current(self) -> str | None:
        return next(iter(self._keys), None)

    def get(self, wanted: str) -> bytes:
        """Raises InvalidInput."""
        try:
            return self._keys[wanted]
        except KeyError:
            had = "another key" if self._keys else "no key"
            raise InvalidInput(
                f"the backup is encrypted with the key {wanted}, and {had} was given",
                code="wrong_backup_key",
                field="key_file",
                hint="name the file with this key: --key-file FILE",
            ) from None


class DamagedBackup(Conflict):
    """A file of a backup is damaged."""

    code = "backup_damaged"


class _Sealer(RawIOBase):
    """Writes to a file, encrypted if there is a key, and hashes what it writes."""

    def __init__(self, file: IO[bytes], keys: Keys, place: str) -> None:
        self._file = file
        self._id = keys.current
        self._key = b"" if self._id is None else keys.get(self._id)
        self._place = place
        self._pending = b""
        self._number = 0
        self._hash = hashlib.sha256()
        self.size = 0
        if self._id is not None:
            self._put(_HEAD + self._id.encode() + b"\n")

    def writable(self) -> bool:
        return True

    def write(self, data: bytes) -> int:  # type: ignore[override]
        if not self._key:
            self._put(bytes(data))
            return len(data)
        self._pending += data
        while len(self._pending) > CHUNK:  # what is left is never empty: it may be the last chunk
            self._seal(self._pending[:CHUNK], last=False)
            self._pending = self._pending[CHUNK:]
        return len(data)

    def finish(self) -> str:
        """Write the last chunk. Returns the SHA-256 of the file."""
        if self._key:
            self._seal(self._pending, last=True)
        return self._hash.hexdigest()

    def _seal(self, chunk: bytes, *, last: bool) -> None:
        sealed = seal(self._key, chunk, _place_of(self._place, self._number, last=last))
        self._number += 1
        self._put(_LENGTH.pack(len(sealed)) + sealed)

    def _put(self, data: bytes) -> None:
        self._file.write(data)
        self._hash.update(data)
        self.size += len(data)


class _Unsealer(RawIOBase):
    """Reads an encrypted file."""

    def __init__(self, file: IO[bytes], key: bytes, place: str, name: Path) -> None:
        self._file = file
        self._key = key
        self._place = place
        self._name = name
        self._number = 0
        self._next = self._frame()
        self._ready = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray) -> int:  # type: ignore[override]
        if not self._ready and self._next is not None:
            frame, self._next = self._next, self._frame()
            try:
                place = _place_of(self._place, self._number, last=self._next is None)
                self._ready = unseal(self._key, frame, place)
            except Undecryptable:
                raise damaged(self._name, "it does not decrypt") from None
            self._number += 1
        size = min(len(buffer), len(self._ready))
        buffer[:size] = self._ready[:size]
        self._ready = self._ready[size:]
        return size

    def _frame(self) -> bytes | None:
        head = self._file.read(_LENGTH.size)
        if not head:
            return None
        size = _LENGTH.unpack(head)[0] if len(head) == _LENGTH.size else 0
        frame = self._file.read(size) if 0 < size <= _LARGEST else b""
        if not frame or len(frame) != size:
            raise damaged(self._name, "it is cut off")
        return frame


def _place_of(place: str, number: int, *, last: bool) -> bytes:
    return f"mainspring/backup/{place}/{number}/{'end' if last else 'more'}".encode()


def damaged(path: Path, how: str) -> DamagedBackup:
    return DamagedBackup(f"{path} is damaged: {how}", hint="choose another backup; `mainspring backup list` shows them")


class Written:
    """How large a file is, and its SHA-256. Known when it is complete."""

    size = 0
    sha256 = ""


@contextmanager
def writing(path: Path, keys: Keys, place: str) -> Iterator[tuple[IO[bytes], Written]]:
    """Write a file that is compressed, and encrypted with the first of the keys. It is on the disk at the end. If the
    block raises, an incomplete file is left, which the caller removes."""
    written = Written()
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        sealer = _Sealer(file, keys, place)
        with gzip.GzipFile(filename="", mode="wb", compresslevel=_FASTEST, fileobj=sealer, mtime=0) as packed:
            yield cast(IO[bytes], packed), written
        written.sha256 = sealer.finish()
        written.size = sealer.size
        file.flush()
        os.fsync(file.fileno())


@contextmanager
def reading(path: Path, keys: Keys, place: str) -> Iterator[IO[bytes]]:
    """Read what `writing` has written. Raises DamagedBackup, and InvalidInput if the key is missing."""
    try:
        with path.open("rb") as file:
            head = file.read(len(_HEAD))
            if head == _HEAD:
                wanted = file.read(_KEY_ID + 1)[:_KEY_ID].decode("ascii", "replace")
                source: IO[bytes] = cast(IO[bytes], _Unsealer(file, keys.get(wanted), place, path))
            else:
                file.seek(0)
                source = file
            with gzip.GzipFile(fileobj=cast(BufferedIOBase, source), mode="rb") as unpacked:
                yield cast(IO[bytes], unpacked)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise damaged(path, str(error)) from error
