"""More steps wait for one than a statement may deal with. All of them end by their rules."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from mainspring.operations.workflows import rule_engine
from tests.operations.hand_worker import outcome
from tests.operations.workflows.scene import Scene

pytestmark = pytest.mark.anyio

KINDS: dict[str, tuple[int, dict[str, Any]]] = {
    "plain": (35, {}),
    "any": (11, {"rule": "one_success"}),
    "limited": (7, {"concurrency": 2}),
    "fails": (13, {"on_upstream_failure": "fail"}),
    "repairs": (12, {"rule": "one_failed"}),
    "mapped": (3, {"map": {"over": [1, 2]}}),
}


@pytest.mark.parametrize("fails", [True, False])
async def test_all_of_them_end_by_their_rules(scene: Scene, monkeypatch: pytest.MonkeyPatch, fails: bool) -> None:
    monkeypatch.setattr(rule_engine, "AT_ONCE", 10)
    steps = [{"name": "first"}] + [
        {"name": f"{kind}.{number}", "depends_on": ["first"], **fields}
        for kind, (many, fields) in KINDS.items()
        for number in range(many)
    ]
    after = [step["name"] for step in steps[1:]]
    last = {"name": "last", "depends_on": after, "rule": "all_done"}
    run_id = await scene.begin(await scene.create([*steps, last]))

    def answer(order: Any) -> Any:
        broken = fails and order.name == "first"
        return outcome(order, "FAILED", error="boom", retry=False) if broken else outcome(order)

    names = Counter((name or "").partition(".")[0] for name in await _run(scene, answer))
    ends = Counter(
        (name.partition(".")[0], *end) for name, end in (await scene.steps(run_id)).items() if "[" not in name
    )
    blocked = ("SKIPPED", "upstream failed: first")
    if fails:
        assert names == {"first": 1, "repairs": 12, "last": 1}
        assert ends == {
            ("first", "FAILED", "failed and asked not to be retried"): 1,
            ("plain", *blocked): 35, ("any", *blocked): 11, ("limited", *blocked): 7,
            ("mapped", *blocked): 3, ("fails", "FAILED", "upstream failed: first"): 13,
            ("repairs", "SUCCESS", None): 12, ("last", "SUCCESS", None): 1,
        }  # fmt: skip
    else:
        assert names == {"first": 1, "plain": 35, "any": 11, "limited": 7, "fails": 13, "mapped": 6, "last": 1}
        assert ends["repairs", "SKIPPED", "no upstream step failed"] == 12
        assert sum(number for (_, state, _), number in ends.items() if state == "SUCCESS") == len(steps) + 1 - 12
    assert await scene.connection.fetchval("select count(*) from mainspring.dead_letters") == fails
    assert await scene.ended(run_id) == ("SUCCESS", None)
    await scene.at_rest()


async def _run(scene: Scene, answer: Any) -> list[str]:
    """Run until nothing is ready, members of maps too."""
    names: list[str] = []
    while True:
        found = await scene.run_all(answer)
        names += found
        if not await scene.expander.run_once() and not found:
            return names
