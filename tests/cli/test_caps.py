"""The options of a worker that say how much runs may use."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mainspring.cli.caps import flags_of, read_caps
from mainspring.kernel.machine import memory_bytes
from mainspring.roles.up import UpOptions, worker_program
from mainspring.worker.processes.caps import Caps, default_caps
from tests.cli.test_verbs import Call

from .conftest import CannedServer

NOTHING: dict[str, Any] = dict.fromkeys(("run_memory", "run_processes", "run_cpu", "memory", "processes", "cpus"))


def caps(**given: Any) -> Caps:
    return read_caps(**(NOTHING | given))


def test_what_is_not_said_has_a_default_and_zero_means_no_cap() -> None:
    assert caps() == default_caps()
    nothing = caps(run_memory="0", run_processes=0, run_cpu="0", memory="0", processes=0, cpus=0.0)
    assert nothing == Caps()


def test_sizes_shares_and_times() -> None:
    found = caps(run_memory="2GiB", run_cpu="10m", memory="50%", cpus=1.5, processes=500, run_processes=20)
    assert found.memory is not None and 0.49 < found.memory / memory_bytes() <= 0.5
    assert found == Caps(2 << 30, 20, 600.0, found.memory, 500, 1.5)


@pytest.mark.parametrize(
    ("words", "field"),
    [
        (["--max-memory", "much"], "--max-memory"),
        (["--max-memory", "120%"], "--max-memory"),
        (["--max-memory", "5k"], "--max-memory"),
        (["--run-max-memory", "%"], "--run-max-memory"),
        (["--run-max-cpu", "soon"], "--run-max-cpu"),
        (["--run-max-processes", "-1"], "--run-max-processes"),
        (["--max-cpus", "many"], "--max-cpus"),
    ],
)
@pytest.mark.parametrize("verb", ["worker", "up"])
def test_a_wrong_value_names_the_option_and_nothing_is_started(
    server: CannedServer, call: Call, verb: str, words: list[str], field: str, tmp_path: Path
) -> None:
    data = ["--data", str(tmp_path / "data")] if verb == "up" else []
    code, _, err = call(verb, *words, *data)
    assert (code, field in err) == (2, True), err
    assert server.asked == []
    assert not (tmp_path / "data").exists()


def test_the_worker_of_up_gets_them(tmp_path: Path) -> None:
    options = UpOptions(
        data=tmp_path, host="127.0.0.1", port=8700, database=None, app=None, postgres_bin=None, slots=None,
        queues=None, log_level="info", caps=flags_of(run_max_memory="1GiB", max_cpus=1.5, max_memory=None),
    )  # fmt: skip
    argv = worker_program(options).argv
    assert argv[argv.index("--run-max-memory") + 1] == "1GiB"
    assert argv[argv.index("--max-cpus") + 1] == "1.5"
    assert "--max-memory" not in argv
