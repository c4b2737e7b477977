"""Histories with one violation each: a schedule with jitter is changed, and a nominal time fires twice or is lost."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from datetime import datetime, timedelta

from tests.cluster.history import SUCCESS, Row
from tests.cluster.oracle import fires_between
from tests.cluster.story import START, Story, time_of


def spread(jitter: float) -> Row:
    seed = zlib.crc32(b"1/tick")
    return {"kind": "CRON", "cron": "*/4 * * * * *", "jitter": jitter, "seed": seed}


def fire_of(nominal: int, jitter: float) -> datetime:
    begin = START + timedelta(seconds=nominal)
    (found,) = fires_between(spread(jitter), begin, begin + timedelta(seconds=3.999))
    return found


_BY_FIRE = sorted((number / 10 for number in range(10, 39)), key=lambda jitter: fire_of(4, jitter))
SHORT, LONG = _BY_FIRE[0], _BY_FIRE[-1]  # the nominal time 4 fires soon, or late


def change(story: Story, at: float, jitter: float, nominal: int) -> None:
    """The schedule gets this jitter, and the next fire is that of this nominal time."""
    story.change(at, schedule=spread(jitter), next_fire_at=fire_of(nominal, jitter).isoformat())


def fire(story: Story, run: str, *, nominal: int, recorded: int | None = None) -> float:
    """Fire what is next, for this nominal time. Return when it was over."""
    told = time_of(nominal if recorded is None else recorded)
    moment = story.job["next_fire_at"]
    at = (datetime.fromisoformat(moment) - START).total_seconds() + 0.01
    following = fire_of(nominal + 4, story.job["schedule"]["jitter"]).isoformat()
    moved = story.job | {"last_fired_for": moment, "next_fire_at": following, "last_nominal_for": told}
    new = story.created(nominal) | {
        "run_id": run,
        "scheduled_for": moment,
        "nominal_for": told,
        "fired_at": time_of(at),
    }
    story.write(at, "node", ("jobs", "U", story.job, moved), ("runs", "I", {}, new))
    story.job, story.runs[run] = moved, new
    story.claim(at + 0.01, run)
    story.lines(run, 1, start=at + 0.02, end=at + 0.03)
    story.end(at + 0.04, run, SUCCESS)
    return at + 0.05


def two_jitters_that_deal_with_each_time_once(story: Story) -> None:
    """No violation: one time has run, and is not the next one again. The other one has come, and is not lost."""
    change(story, 3.5, SHORT, 4)
    at = fire(story, "one", nominal=4)
    change(story, at, LONG, 8)
    change(story, 8.001, SHORT, 8)
    fire(story, "two", nominal=8)


def a_nominal_time_with_two_runs(story: Story) -> None:
    """It has run. Another jitter gives it a later time, and it runs again."""
    change(story, 3.5, SHORT, 4)
    at = fire(story, "one", nominal=4)
    change(story, at, LONG, 4)
    fire(story, "two", nominal=4)


def a_nominal_time_that_becomes_earlier(story: Story) -> None:
    change(story, 3.5, SHORT, 4)
    at = fire(story, "one", nominal=4)
    story.change(at, last_nominal_for=time_of(0))


def a_run_with_the_nominal_time_of_another(story: Story) -> None:
    change(story, 3.5, SHORT, 4)
    fire(story, "one", nominal=4, recorded=8)


def a_change_that_loses_its_seed(story: Story) -> None:
    change(story, 3.5, SHORT, 4)
    story.change(3.6, schedule={name: value for name, value in spread(SHORT).items() if name != "seed"})


def a_change_that_loses_a_time_that_has_come(story: Story) -> None:
    change(story, 3.5, LONG, 4)
    change(story, 4.001, SHORT, 8)


NOMINAL_WRONGS: list[tuple[str, Callable[[Story], None]]] = [
    ("S1", a_nominal_time_with_two_runs),
    ("S1", a_nominal_time_that_becomes_earlier),
    ("S1", a_run_with_the_nominal_time_of_another),
    ("S2", a_change_that_loses_its_seed),
    ("L2", a_change_that_loses_a_time_that_has_come),
]
