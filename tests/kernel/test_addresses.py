"""Several servers: one is used until it fails, then the next one."""

from __future__ import annotations

from collections import Counter

import pytest

from mainspring.kernel.addresses import ServerRotation, in_preferred_order, split_addresses


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


def state(rota: ServerRotation) -> tuple[str, bool]:
    return rota.current, rota.untried


def test_a_failure_moves_on_once_and_round_again() -> None:
    rota = ServerRotation(["a", "b", "c"])
    assert rota.failed("a")
    assert state(rota) == ("b", True)
    assert not rota.failed("a"), "two that were at one address fail together"
    assert state(rota) == ("b", True)
    rota.failed("b")
    rota.failed("c")
    assert state(rota) == ("a", False), "all of them have failed: it is time to wait"
    rota.answered()
    assert state(rota) == ("a", True), "it stays with the one that answers"


def test_of_many_names_each_address_is_the_first_and_the_second_choice_of_its_part() -> None:
    addresses = [f"http://10.0.0.{number}:8700" for number in range(1, 5)]
    orders = [in_preferred_order(addresses, f"worker-{number}") for number in range(2000)]
    assert all(sorted(order) == addresses for order in orders)
    assert min(Counter(order[0] for order in orders).values()) > 400
    pairs = Counter(order[:2] for order in orders)
    assert len(pairs) == 12 and min(pairs.values()) > 100, "who loses the first choice spreads over all the others"


def test_the_order_is_the_names_own_whatever_the_order_given_and_without_one_of_them_the_rest_is_as_before() -> None:
    addresses = ["http://a", "http://b", "http://c", "http://d"]
    order = in_preferred_order(addresses, "w")
    assert in_preferred_order(reversed(addresses), "w") == order
    for gone in addresses:
        rest = [address for address in addresses if address != gone]
        assert in_preferred_order(rest, "w") == tuple(address for address in order if address != gone)


def test_back_to_a_better_one_and_only_to_a_better_one() -> None:
    rota = ServerRotation(["a", "b", "c"])
    assert rota.better == ()
    rota.failed("a")
    rota.failed("b")
    assert (rota.current, rota.better) == ("c", ("a", "b"))
    assert rota.go_to("b")
    assert not rota.go_to("c") and not rota.go_to("b")
    assert (rota.current, rota.better) == ("b", ("a",))
    assert rota.go_to("a")


def test_the_only_one_is_kept() -> None:
    rota = ServerRotation(["a"])
    assert not rota.failed("a")
    assert state(rota) == ("a", False)
