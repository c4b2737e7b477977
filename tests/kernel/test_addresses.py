"""Several servers: one is used until it fails, then the next."""

from __future__ import annotations

import pytest

from mainspring.kernel.addresses import Rota, split_addresses


@pytest.mark.parametrize(
    ("text", "addresses"),
    [
        ("http://a:1", ("http://a:1",)),
        (" http://a:1/ , http://b:2,", ("http://a:1", "http://b:2")),
        ("http://a,http://b/,http://a/", ("http://a", "http://b")),
        (" , ", ()),
    ],
)
def test_addresses_as_they_are_written(text: str, addresses: tuple[str, ...]) -> None:
    assert split_addresses(text) == addresses


def state(rota: Rota) -> tuple[str, bool]:
    return rota.current, rota.untried


def test_a_failure_moves_on_once_and_round_again() -> None:
    rota = Rota(["a", "b", "c"])
    assert rota.failed("a")
    assert state(rota) == ("b", True)
    assert not rota.failed("a"), "two that were at one address fail together"
    assert state(rota) == ("b", True)
    rota.failed("b")
    rota.failed("c")
    assert state(rota) == ("a", False), "all of them have failed: it is time to wait"
    rota.answered()
    assert state(rota) == ("a", True), "it stays with the one that answers"


def test_the_only_one_is_kept() -> None:
    rota = Rota(["a"])
    assert not rota.failed("a")
    assert state(rota) == ("a", False)
