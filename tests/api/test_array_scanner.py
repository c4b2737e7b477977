"""The elements of a large array, found many at a time, are those that the decoder finds."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainspring.api import array_scanner
from mainspring.api.array_scanner import ArrayScanner, ElementTooLarge
from mainspring.kernel.time_slices import TimeSlices

TEXTS = st.sampled_from(["a", '"},{"name":"', "},{", "]", "\\", "ü", ""])
VALUES = st.recursive(TEXTS | st.integers() | st.none(), lambda inner: st.lists(inner, max_size=3), max_leaves=5)
STEPS = st.fixed_dictionaries(
    {"name": TEXTS},
    optional={"payload": st.dictionaries(TEXTS, VALUES, max_size=3), "of": st.just([{"name": "b"}] * 2)},
)


def scanned(body: bytes, longest: int = 10_000) -> list[bytes]:
    async def all_elements() -> list[bytes]:
        scanner = ArrayScanner(body, 0, longest, TimeSlices())
        found = [element async for element in scanner.elements()]
        assert scanner.end == len(body)
        return found

    return asyncio.run(all_elements())


@given(st.lists(STEPS | VALUES, max_size=30), st.integers(1, 400), st.sampled_from([0, 1]))
def test_any_array_has_the_elements_that_the_decoder_finds(items: list[Any], window: int, indent: int) -> None:
    body = msgspec.json.encode(items)
    if indent:
        body = msgspec.json.format(body, indent=indent)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(array_scanner, "_WINDOW", window)
        assert [msgspec.json.decode(element) for element in scanned(body)] == items


def test_elements_that_begin_alike_are_taken_many_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    one_by_one: list[int] = []
    behind_element = ArrayScanner._behind_element

    def counted(self: ArrayScanner, place: int, index: int) -> int:
        one_by_one.append(index)
        return behind_element(self, place, index)

    monkeypatch.setattr(ArrayScanner, "_behind_element", counted)
    assert len(scanned(msgspec.json.encode([{"name": f"step-{number}"} for number in range(20_000)]))) == 20_000
    assert len(one_by_one) < 50


def test_what_is_no_array_is_refused_behind_many_elements_too() -> None:
    many = msgspec.json.encode([{"name": f"step-{number}"} for number in range(5000)])
    for wrong in (b',{"name":}]', b',{"name":1}', b' {"name":1}]', b",]"):
        with pytest.raises(msgspec.DecodeError):
            scanned(many[:-1] + wrong)
    with pytest.raises(ElementTooLarge) as caught:
        scanned(many[:-1] + b',{"name":"' + b"x" * 20_000 + b'"},{"name":1}]')
    assert caught.value.index == 5000
