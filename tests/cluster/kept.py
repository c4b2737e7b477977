"""Histories in files: compressed JSON, which a later version of the rules can judge again."""

from __future__ import annotations

import lzma
from pathlib import Path

import msgspec

from tests.cluster.history import History

MOST_BYTES = 20 * 1024 * 1024  # of a file in the repository


def write(history: History, file: Path) -> int:
    """Returns the bytes of the file."""
    packed = lzma.compress(msgspec.json.encode(history), preset=6)
    file.write_bytes(packed)
    return len(packed)


def read(file: Path) -> History:
    return msgspec.json.decode(lzma.decompress(file.read_bytes()), type=History)
