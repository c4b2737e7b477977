"""A batch that is refused takes little memory, however large its body is."""

from __future__ import annotations

import tracemalloc

import pytest

from mainspring.api.large_batch import read_batch
from mainspring.domain.errors import InvalidInput

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("element", [b"{}", b"1", b'{"task":"x"}'])
async def test_too_many_jobs_are_refused_before_they_are_built(element: bytes) -> None:
    body = b"[" + b",".join([element] * (60_000_000 // (len(element) + 1))) + b"]"
    tracemalloc.start()
    try:
        with pytest.raises(InvalidInput, match="more than 10000 jobs"):
            await read_batch(body)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 4 * 1024 * 1024
