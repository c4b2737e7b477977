"""A violation is printed with what one needs: the rule, the history of what it names, and the command that replays
it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from typing import Any

import pytest

from tests.cluster import __main__ as program
from tests.cluster.drill import Outcome
from tests.cluster.faults import FAULTS
from tests.cluster.history import Injection, Violation
from tests.cluster.report import MOST_EXPLAINED, MOST_LINES, explained, replay_of_drill, replay_of_test, report
from tests.cluster.rules import judge
from tests.cluster.story import Story, plain_story, time_of
from tests.cluster.wrong_nominal_stories import NOMINAL_WRONGS, a_nominal_time_with_two_runs
from tests.cluster.wrong_stories import WRONGS, a_second_end

LINE = re.compile(r"    (\d\d:\d\d:\d\d\.\d{3})  ")


def lines_of(text: str) -> list[str]:
    return [line for line in text.splitlines() if LINE.match(line)]


def found_in(wrong: Callable[[Story], None], rule: str) -> tuple[Story, Violation]:
    story = plain_story()
    wrong(story)
    return story, next(violation for violation in judge(story.history) if violation.rule == rule)


@pytest.mark.parametrize(
    ("rule", "wrong"), [*WRONGS, *NOMINAL_WRONGS], ids=lambda value: getattr(value, "__name__", value)
)
def test_each_violation_comes_with_its_history_in_order(rule: str, wrong: Callable[[Story], None]) -> None:
    story, violation = found_in(wrong, rule)
    text = explained(story.history, violation)
    assert text.splitlines()[0] == f"{rule}: {violation.words}"
    times = [line[4:16] for line in lines_of(text)]
    assert times == sorted(times)
    assert 0 < len(times) <= MOST_LINES
    assert all(len(line) < 600 for line in text.splitlines()[1:])


def test_the_changes_are_told_with_their_times_transactions_and_processes() -> None:
    story, violation = found_in(a_nominal_time_with_two_runs, "S1")
    text = explained(story.history, violation)
    assert "history of job tick, run one, run two" in text
    (created,) = [line for line in lines_of(text) if "insert runs run_id=two" in line]
    assert re.search(r"12:00:07\.\d{3}  node +tx \d+ \(began [+-]0\.000\)", created)
    assert "scheduled_for 12:00:07.359, " in created and "nominal_for 12:00:04" in created
    fired = next(line for line in lines_of(text) if "update jobs job_id=tick" in line and "last_nominal_for" in line)
    assert "last_nominal_for null -> 12:00:04" in fired
    assert "ledger       run two attempt 1: start (pid 1)" in text
    assert "run_id=run-1:" not in text.replace("insert runs run_id=run-1:", ""), "of other runs only that they began"


def test_faults_exits_and_calls_are_told_at_their_places() -> None:
    story, violation = found_in(a_second_end, "S4")
    history = story.history
    history.injections.append(Injection("kill -9 worker", "worker-1.1", 2.5, 3.05))
    history.injections.append(Injection("kill -9 server", "much later", 900.0, 901.0))
    story.call("retry", 3.2, run_id="run-3")
    text = explained(history, violation)
    begun, over, asked, second = (
        text.index(what)
        for what in ("kill -9 worker (worker-1.1) begins", "is over", "retry tick: ok 201", "insert run_history")
    )
    assert begun < over < asked
    assert text.index("update runs run_id=run-3") < second
    assert "much later" not in text


def test_of_a_long_life_the_part_around_the_violation_is_told() -> None:
    story = Story()
    story.create(0.1)
    for second in range(1, 1001):
        story.fire(second + 0.01, second)
    violation = Violation("L2", f"tick: after {time_of(500)} comes nothing")
    text = explained(story.history, violation)
    told = lines_of(text)
    assert len(told) == MOST_LINES and f"{MOST_LINES} of 2001 lines" in text
    assert told[0][4:12] == "12:08:05" and told[-1][4:12] == "12:08:34"
    told = lines_of(explained(story.history, Violation("L2", "tick: [12:10:00]")))
    assert told[0][4:12] == "12:09:45"
    assert lines_of(explained(story.history, Violation("S3", "tick")))[-1][4:12] == "12:16:40"  # the last ones


def test_what_is_left_out_is_counted() -> None:
    story = Story()
    story.create(0.1)
    for second in range(1, 101):
        story.fire(second + 0.01, second)
    text = explained(story.history, Violation("S1", f"tick: {time_of(10)} and {time_of(90)}"))
    (left_out,) = re.findall(r"\.\.\. (\d+) line\(s\) left out \.\.\.", text)
    assert 0 < int(left_out) < 201 - MOST_LINES


def test_very_many_violations_are_listed_without_their_history() -> None:
    story = plain_story()
    found = [Violation("S1", f"run run-1 ({number})") for number in range(MOST_EXPLAINED + 3)]
    text = report(story.history, found, "the command")
    assert text.count("history of run run-1") == MOST_EXPLAINED
    assert f"and 3 more:\n  S1: run run-1 ({MOST_EXPLAINED})" in text
    assert text.endswith("replay it with:\n  the command")


def test_the_outcome_of_a_drill_says_all_of_it() -> None:
    story, violation = found_in(a_nominal_time_with_two_runs, "S1")
    text = str(Outcome(17, story.history, [violation], "python -m tests.cluster --seed 17"))
    assert str(violation) in text and "insert runs run_id=two" in text
    assert "replay it with:\n  python -m tests.cluster --seed 17" in text
    assert "replay" not in str(Outcome(17, story.history, [], "python"))


# -- the command


def given_by(command: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    words = shlex.split(command)
    begin = words.index("tests.cluster")
    monkeypatch.setattr("sys.argv", words[begin:])
    return program.arguments()


def test_the_command_repeats_the_same_faults(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MAINSPRING_FAULT_SEED", raising=False)
    given = given_by(replay_of_drill(41, 7.5, ["kill-all", "kill-server", "drain-worker"], 5), monkeypatch)
    assert (given.seed, given.rate, given.groups, given.only) == (41, 7.5, 5, "kill-all,kill-server,drain-worker")
    names = given.only.split(",")
    first, again = (list(program.composed(given.seed, 0.0, given.groups, names)) for _ in range(2))
    assert first == again and len(first) == 5
    everything = list(program.composed(41, 0.0, 40, list(FAULTS)))
    assert (
        everything[:5]
        == list(program.composed(41, 0.0, 5, list(FAULTS)))
        != list(program.composed(42, 0.0, 5, list(FAULTS)))
    )
    assert given_by(replay_of_drill(41, 12.0, None, 5), monkeypatch).only is None


def test_the_command_says_what_of_the_environment_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MAINSPRING_TEST_PGBOUNCER", "transaction")
    monkeypatch.setenv("MAINSPRING_FAULT_SEED", "9")
    monkeypatch.setenv("MAINSPRING_TOKEN", "ms_secret")
    command = replay_of_drill(41, 12.0, None, 5)
    assert command.startswith("MAINSPRING_TEST_PGBOUNCER=transaction python -m tests.cluster --seed 41 --groups 5")
    assert "MAINSPRING_FAULT_SEED" not in command and "ms_secret" not in command


def test_a_test_names_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(
        "PYTEST_CURRENT_TEST", "tests/cluster/test_faults.py::test_a_cluster[without its database] (call)"
    )
    words = shlex.split(replay_of_test(3))
    assert words[-2:] == ["0", "tests/cluster/test_faults.py::test_a_cluster[without its database]"]
    assert "MAINSPRING_FAULT_SEED=3" in words
