"""What runs may use on a worker: which of two limits counts, what an error says, and process tasks."""

from __future__ import annotations

import pytest

from mainspring.kernel.machine import memory_bytes, process_ids
from mainspring.wire.execution import ResourceLimits
from mainspring.worker.processes.caps import Caps, breach_in_words, default_caps

from .a_process_executor import Executor, with_an_executor

CAPS = Caps(run_memory=1 << 30, run_processes=100, run_cpu=60.0)


@pytest.mark.parametrize(
    ("asked", "given", "refused"),
    [
        (None, ResourceLimits(1 << 30, 60.0, 100), []),
        (ResourceLimits(files=5, disk=7), ResourceLimits(1 << 30, 60.0, 100, files=5, disk=7), []),
        (ResourceLimits(1 << 20, 5.0, 10), ResourceLimits(1 << 20, 5.0, 10), []),
        (
            ResourceLimits(2 << 30, 120.0, 1000),
            ResourceLimits(1 << 30, 60.0, 100),
            ["memory 2GiB, and gets 1GiB", "processes 1000, and gets 100", "cpu 2m, and gets 1m"],
        ),
    ],
)
def test_the_lower_one_of_the_job_and_the_worker_counts(
    asked: ResourceLimits | None, given: ResourceLimits, refused: list[str]
) -> None:
    assert CAPS.applied(asked) == given
    assert CAPS.exceeded_by(asked) == refused
    assert Caps().applied(asked) == (asked or ResourceLimits())


def test_an_error_names_the_option_if_the_limit_is_that_of_the_worker() -> None:
    lower = ResourceLimits(1 << 20, 5.0, 10)
    assert breach_in_words("processes", lower, CAPS) == "limit of 10 processes exceeded"
    assert breach_in_words("processes", CAPS.applied(None), CAPS) == (
        "limit of 100 processes exceeded, the most that this worker allows (--run-max-processes)"
    )


def test_the_defaults_keep_the_machine_alive() -> None:
    caps = default_caps()
    assert (caps.run_processes, caps.run_memory, caps.run_cpu, caps.cpus) == (1024, None, None, None)
    assert caps.memory is not None and 0.79 < caps.memory / memory_bytes() <= 0.8
    assert caps.processes is not None and caps.processes == process_ids() * 80 // 100


def test_a_process_task_is_held_to_the_caps_and_its_interpreter_does_not_count() -> None:
    caps = Caps(run_processes=30, run_memory=64 << 20, run_cpu=1.0)

    async def test(executor: Executor) -> None:
        for _ in range(2):  # the same child
            assert await executor.result("echoes", {"text": "x"}) == 1
        ending = await executor.run("multiplies", {"most": 200})
        said = "limit of 30 processes exceeded, the most that this worker allows (--run-max-processes)"
        assert ending.error is not None and ending.error.startswith(said)
        ending = await executor.run("takes", {"size": 200 << 20})
        assert ending.error is not None and ending.error.startswith("memory limit of 64MiB: MemoryError")
        ending = await executor.run("burns", {"seconds": 20})
        assert ending.error == "CPU limit of 1s exceeded, the most that this worker allows (--run-max-cpu)"
        assert await executor.result("echoes", {"text": "x"}) == 1

    with_an_executor(test, caps=caps)
