"""Jobs with limits and unique jobs for the load: the limits of one task count together, and each kind has its own
keys."""

from __future__ import annotations

import random
from typing import Any

_EVERY_SECOND = "* * * * * *"
# Recurring jobs with limits. When all workers are killed at once, their runs keep their slots for 75 s and more. What
# has piled up by then must be done soon after.
RECURRING: dict[str, dict[str, Any]] = {
    "queued": {
        "schedule": {"every": "2s"}, "overlap": "queue", "misfire": {"policy": "all"}, "payload": {"seconds": 0.1},
    },
    "replaced": {"schedule": _EVERY_SECOND, "overlap": "cancel_previous", "payload": {"seconds": 0.9}},
    "two-at-once": {"schedule": {"every": "2s"}, "overlap": "allow", "concurrency": 2, "payload": {"seconds": 0.3}},
    "any-rule": {"schedule": _EVERY_SECOND, "payload": {"seconds": 0.3}},
    "never-beside": {"schedule": _EVERY_SECOND, "payload": {"seconds": 0.2}},
}  # fmt: skip
# Jobs whose overlap rule is changed while they fire. The runs of the second never overlap.
CHANGED_RULES = {
    "any-rule": ("allow", "skip", "queue", "cancel_previous"),
    "never-beside": ("skip", "queue", "cancel_previous"),
}
CHANGED_LIMIT = "task:note:labels.changing"  # it is raised and lowered while runs are held
CHANGED_ORDER = "task:note:labels.order"  # some jobs declare strict order, and a person ends it
_RETRY = {"max_attempts": 3, "backoff": "constant", "base": "200ms"}
_ACCOUNTS = ("a", "b", "c")
# Unique jobs: what their names begin with. The second are not unique any more when they have been claimed.
KEPT, REPLACED = "unique-kept-", "unique-replaced-"
# Unique jobs whose time is pushed, at most so many seconds after the first submission.
LATER, LATER_FOR = "unique-later-", 4.0
NARROW = "narrow"  # a queue whose limit changes, and that is paused now and then


def limited_job(chance: random.Random) -> dict[str, Any]:
    """A job that starts at once and has one or several limits."""
    account = chance.choice(_ACCOUNTS)
    work: dict[str, Any] = {"seconds": chance.choice((0, 0, 0.05, 0.3)), "account": account}
    body: dict[str, Any] = {"task": "note", "payload": work, "priority": chance.choice(("low", "normal", "critical"))}
    if chance.random() < 0.2:
        work["failures"] = chance.choice((1, 1, 9))
        body["retry"] = _RETRY
    kind = chance.choices(
        ("one", "strict", "three", "two", "snooze", "changing", "order", "rate", "narrow", "at most once"),
        (6, 6, 4, 5, 2, 4, 6, 3, 4, 1),
    )
    match kind[0]:
        case "one":
            body["concurrency"] = {"key": "payload.account", "limit": 1}
        case "strict":
            body["concurrency"] = {"key": "labels.strict", "limit": 1, "order": "strict"}
            body["labels"] = {"strict": account}
        case "three":
            body["concurrency"] = {"key": "labels.three", "limit": 3}
            body["labels"] = {"three": account}
        case "two":
            body["concurrency"] = [{"key": "payload.account", "limit": 1}, {"key": "labels.shared", "limit": 2}]
            body["labels"] = {"shared": chance.choice(("x", "y"))}
        case "snooze":
            body = {
                "task": "note.snooze", "payload": {"times": chance.randint(1, 3)}, "retries": 0,
                "concurrency": {"key": "labels.snoozed", "limit": 1}, "labels": {"snoozed": account},
            }  # fmt: skip
        case "changing":
            body["concurrency"] = {"key": "labels.changing", "limit": 2}
            body["labels"] = {"changing": chance.choice(_ACCOUNTS[:2])}
        case "order":  # refused if it declares the other order than strict order that is in force
            order = chance.choice(("priority", "priority", "strict"))
            body["concurrency"] = {"key": "labels.order", "limit": 1, "order": order}
            body["labels"] = {"order": chance.choice(_ACCOUNTS[:2])}
        case "rate":
            body["rate_limit"] = {"rate": "4/s", "burst": 2, "key": "labels.paced"}
            body["labels"] = {"paced": chance.choice(_ACCOUNTS[:2])}
        case "narrow":
            body["queue"] = NARROW
        case _:
            body |= {"concurrency": {"key": "payload.account", "limit": 1}, "delivery": "at_most_once"}
            body.pop("retry", None)
            work.pop("failures", None)
    return body


def unique_job(chance: random.Random) -> dict[str, Any]:
    """A job that starts at once, with a key that other jobs have too. Some of them have limits as well."""
    body: dict[str, Any] = {"task": "note", "payload": {"seconds": chance.choice((0, 0.1, 0.6)), "account": "u"}}
    other = chance.choice(("keep", "replace", "later"))
    body["name"] = {"keep": KEPT, "replace": REPLACED, "later": LATER}[other] + chance.choice(_ACCOUNTS)
    if other == "later":
        more = {"by": ["task", "name"], "else": other, "for": LATER_FOR}
        return body | {"delay": chance.choice((0.3, 1.0, 2.5)), "unique": more}
    body["unique"] = {"by": ["task", "name"], "else": other}
    if body["name"].endswith("a"):  # all of a key: a job is not replaced by one that needs other slots
        body["concurrency"] = {"key": "payload.account", "limit": 1}
    return body
