"""No code reads a hidden clock: time comes from the database or from an injected Clock."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import mainspring
from tests.sources import parsed

ROOT = Path(mainspring.__file__).parent
READS = {
    "time.monotonic",
    "time.monotonic_ns",
    "time.time",
    "time.time_ns",
    "time.perf_counter",
    "time.perf_counter_ns",
    "datetime.now",
    "datetime.utcnow",
    "datetime.today",
    "date.today",
    "loop.time",
}
WAITS = {
    "time.sleep",
    "asyncio.sleep",
    "asyncio.timeout",
    "asyncio.timeout_at",
    "asyncio.wait_for",
    "loop.call_later",
    "loop.call_at",
}
LAST_NAMES = {name.rpartition(".")[2] for name in READS | WAITS}
# Programs of their own, without an event loop. The watchdog imports nothing but the standard library.
SEPARATE_PROCESSES = (
    "worker/processes/watchdog/",
    "worker/processes/launch.py",
    "worker/processes/parent_watchdog.py",
    "worker/processes/death_notice.py",
    "worker/executors/process/warm/",
    "kinds/shell/sandbox/probe.py",  # runs before there is an event loop
)


def sources(*packages: str) -> Iterator[Path]:
    for package in packages:
        for path in sorted((ROOT / package).rglob("*.py")):
            if not str(path.relative_to(ROOT)).startswith(SEPARATE_PROCESSES):
                yield path


def used(code: str) -> Iterator[tuple[int, str]]:
    """The names `owner.attribute` that may be of a clock, and the waits that are given a real time limit. A loop
    is called `loop`, whatever the expression."""
    for node in ast.walk(parsed(code)):
        if isinstance(node, ast.ImportFrom) and node.module in ("time", "asyncio"):
            yield from ((node.lineno, f"{node.module}.{name.name}") for name in node.names)
        if isinstance(node, ast.Attribute) and node.attr in LAST_NAMES:
            owner = ast.unparse(node.value)
            owner = "loop" if owner.lower().endswith(("loop", "loop()")) else owner.rpartition(".")[2]
            yield node.lineno, f"{owner}.{node.attr}"
        if isinstance(node, ast.Call) and any(keyword.arg == "timeout" for keyword in node.keywords):
            yield node.lineno, {"asyncio.wait": "asyncio.wait_for"}.get(ast.unparse(node.func), "")


def offences(paths: Iterator[Path], forbidden: set[str]) -> list[str]:
    return [
        f"{path.relative_to(ROOT)}:{line} {name}"
        for path in paths
        for line, name in used(path.read_text())
        if name in forbidden
    ]


@pytest.mark.slow
def test_no_clock_is_read_but_the_injected_one() -> None:
    assert offences(sources("worker", "operations", "scheduler", "upkeep", "domain"), READS) == []


def test_the_worker_waits_by_the_injected_clock() -> None:
    assert offences(sources("worker"), WAITS) == []


@pytest.mark.parametrize(
    "code",
    [
        "import time\nnow = time.monotonic()",
        "read = time.monotonic",
        "from time import monotonic",
        "asyncio.get_running_loop().time()",
        "self._loop.time()",
        "datetime.datetime.now(UTC)",
    ],
)
def test_a_hidden_read_is_found(code: str) -> None:
    assert {name for _, name in used(code)} & READS


@pytest.mark.parametrize(
    "code",
    [
        "await asyncio.sleep(1)",
        "loop.call_later(1, f)",
        "asyncio.get_running_loop().call_at(1, f)",
        "await asyncio.wait({task}, timeout=3)",
        "await asyncio.wait_for(task, 3)",
    ],
)
def test_a_hidden_wait_is_found(code: str) -> None:
    assert {name for _, name in used(code)} & WAITS
