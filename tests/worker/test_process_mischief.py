"""Process tasks that do odd things to their worker: each costs its own run at most, and is never run again for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from mainspring.wire.execution import RunSetup

from .a_process_executor import Executor, stop, with_an_executor
from .processes import written


def test_numbers_and_words_of_any_kind_reach_the_worker(tmp_path: Path) -> None:
    async def test(executor: Executor) -> None:
        ending = await executor.run("tells_oddly", {"path": f"{tmp_path}/log"})
        assert (ending.error, ending.retry_after) == ("Retry: later", 30.0)
        assert executor.progress[:3] == [(0.25, "a Decimal"), (1.0, "100"), (0.5, "half ? of it")]
        assert executor.progress[3] == (0.75, "x" * 1000)
        assert await written(tmp_path / "log") == ["began"]

    with_an_executor(test)


@pytest.mark.parametrize("words", ["00000003616263", "ffffffff", "0000000193"])
def test_a_task_that_writes_to_the_workers_channel_fails_and_is_not_begun_again(tmp_path: Path, words: str) -> None:
    async def test(executor: Executor) -> None:
        ending = await executor.run("talks_to_the_worker", {"path": f"{tmp_path}/log", "words": words})
        assert ending.status == "FAILED"
        assert (ending.error or "").startswith("the task wrote to descriptor 3, which the worker uses")
        assert await written(tmp_path / "log") == ["began"]
        assert await executor.result("echoes", {"text": "next"}) == 4

    with_an_executor(test)


def test_signals_that_a_run_has_blocked_reach_the_next_one(tmp_path: Path) -> None:
    async def test(executor: Executor) -> None:
        pid = await executor.result("blocks_signals")
        attempt, running = executor.begin("waits", {"path": f"{tmp_path}/log"}, setup=RunSetup(kill_grace=30.0))
        await written(tmp_path / "log")
        stop(attempt)
        assert (await running).status == "CANCELLED"
        assert await executor.result("pid") == pid

    with_an_executor(test)


@pytest.mark.parametrize("how", ["closed", "redirected", "slowed down"])
def test_an_interpreter_that_has_lost_its_output_or_its_priority_is_not_used_again(how: str) -> None:
    async def test(executor: Executor) -> None:
        pid = await executor.result("loses_its_output", {"how": how})
        assert await executor.result("pid") != pid

    with_an_executor(test)
