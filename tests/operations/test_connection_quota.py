"""The quota of streams and followed logs is shared fairly between tenants."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from mainspring.domain.errors import TooManyRequests, Unavailable
from mainspring.kernel.ids import TenantId, uuid7
from mainspring.operations.access.caller import Caller
from mainspring.operations.live.connection_quota import ConnectionQuota


class Scene:
    """Connections of tenants, which leave when they are told to."""

    def __init__(self, most: int, of_caller: int = 1000) -> None:
        self.quota = ConnectionQuota("streams", most, of_caller)
        self.left: list[str] = []
        self._stacks: dict[str, ExitStack] = {}

    def connect(self, caller: Caller, name: str) -> None:
        stack = ExitStack()
        stack.enter_context(self.quota.hold(caller, lambda: self.left.append(name)))
        self._stacks[name] = stack

    def disconnect(self, name: str) -> None:
        self._stacks.pop(name).close()


def caller(tenant: int) -> Caller:
    return Caller(TenantId(tenant), "viewer", "v", uuid7())


def test_a_tenant_may_have_all_and_gives_up_the_newest_until_others_have_as_many() -> None:
    scene, noisy, quiet = Scene(6), caller(1), caller(2)
    for number in range(6):
        scene.connect(noisy, f"n{number}")
    with pytest.raises(Unavailable):
        scene.connect(noisy, "one more")
    for number in range(3):
        scene.connect(quiet, f"q{number}")
    assert scene.left == ["n5", "n4", "n3"]
    for one in (noisy, quiet):
        with pytest.raises(Unavailable) as refusal:
            scene.connect(one, "one more")
        assert (refusal.value.code, refusal.value.retry_after) == ("streams_full", 10)
    scene.connect(caller(3), "third tenant")
    assert len(scene.quota) == 6 and len(scene.left) == 4


def test_a_place_that_was_given_up_is_not_freed_twice() -> None:
    scene, noisy, quiet = Scene(2), caller(1), caller(2)
    scene.connect(noisy, "n0")
    scene.connect(noisy, "n1")
    scene.connect(quiet, "q0")
    assert scene.left == ["n1"] and len(scene.quota) == 2
    scene.disconnect("n1")
    assert len(scene.quota) == 2
    scene.disconnect("q0")
    scene.disconnect("n0")
    assert len(scene.quota) == 0


def test_a_caller_has_a_bound_of_its_own() -> None:
    scene, one = Scene(100, of_caller=2), caller(1)
    scene.connect(one, "a")
    scene.connect(one, "b")
    with pytest.raises(TooManyRequests) as refusal:
        scene.connect(one, "c")
    assert refusal.value.code == "too_many_streams"
    scene.connect(caller(1), "another token")
    scene.disconnect("a")
    scene.connect(one, "c")
