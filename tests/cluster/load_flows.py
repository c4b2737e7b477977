"""Workflows for the load: a chain, a diamond with rules, and a map with a join. Each run may be told to fail in a
place, and some are cancelled or rerun."""

from __future__ import annotations

import random
from typing import Any

_NOTE = {"task": "note", "retries": 0}
_WORK = {"seconds": {"$parameter": "seconds"}}
_MEMBERS = 70  # more than a join counts at once


def _step(name: str, *parents: str, **fields: Any) -> dict[str, Any]:
    more = {"depends_on": list(parents)} if parents else {}
    return {"name": name, **_NOTE, "payload": _WORK, **more, **fields}


def _may_fail(which: str) -> dict[str, Any]:
    return {**_WORK, "failures": {"$parameter": which}}


FLOWS: dict[str, list[dict[str, Any]]] = {
    "chain": [
        _step("a"),
        _step("b", "a", payload=_may_fail("failures")),
        _step("c", "b", payload={"seconds": 0, "failures": 0, "account": {"$literal": "c"}}),
        _step("d", "c"),
    ],
    "diamond": [
        _step("top"),
        _step("left", "top", payload=_may_fail("failures")),
        _step("right", "top"),
        _step("bottom", "left", "right", on_upstream_failure="fail"),
        _step("any", "left", "right", rule="one_success"),
        _step("alarm", "left", "right", rule="one_failed"),
        _step("tidy", "bottom", "any", "alarm", rule="all_done"),
    ],
    "map": [
        _step("before"),
        {"name": "each", **_NOTE, "depends_on": ["before"], "map": {"range": _MEMBERS, "max_parallel": 40},
         "payload": {"seconds": 0, "account": {"$literal": "m"}}},
        _step("join", "each", payload={"seconds": 0, "failures": 0}),
    ],
}  # fmt: skip


def definition(name: str) -> dict[str, Any]:
    """The body of the request that creates it."""
    parameters = {"seconds": 0, "failures": 0} if name != "map" else {"seconds": 0}
    return {"workflow_id": name, "steps": FLOWS[name], "parameters": parameters, "overlap": "allow"}


def parameters(chance: random.Random, name: str) -> dict[str, Any]:
    """Those of one run."""
    found: dict[str, Any] = {"seconds": chance.choice((0, 0, 0.1, 0.4))}
    if name != "map":
        found["failures"] = chance.choice((0, 0, 9))
    return found
