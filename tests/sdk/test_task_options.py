"""The options of a task: invalid ones are reported at its declaration. They also apply to jobs submitted by name."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec
import pytest

import mainspring.testing
from mainspring import InvalidInput, Mainspring
from mainspring.sdk.tasks.declared import declared
from mainspring.sdk.tasks.task_options import with_defaults

LATER = "2038-01-19T03:14:07Z"


def app_with(**options: Any) -> Mainspring:
    app = Mainspring()

    @app.task("billing.charge", **options)
    def charge(account: str = "a1") -> str:
        return account

    return app


def test_a_worker_declares_them_with_the_parameters() -> None:
    app = app_with(queue="heavy", timeout=timedelta(minutes=5), retries=2, executor="process", worker_concurrency=3)
    schema = msgspec.json.decode(declared(app.tasks.values())["billing.charge"])
    assert schema["properties"] == {"account": {"type": "string"}}
    assert schema["x-mainspring-options"] == {"queue": "heavy", "timeout": 300.0, "retry": {"max_attempts": 3}}


@pytest.mark.parametrize(
    ("path", "hint"),
    [("acount", "Did you mean 'account'?"), ("customer.id", "It takes account")],
    ids=("typo", "other"),
)
def test_runs_are_not_found_by_a_value_that_no_payload_has(path: str, hint: str) -> None:
    with pytest.raises(ValueError, match=r"task billing\.charge: search: it has no parameter") as refused:
        app_with(search=["account", path])
    assert hint in str(refused.value)

    @Mainspring().task(search=["anything"])
    def takes_all(**values: int) -> None: ...


def test_a_task_without_any_declares_its_parameters_alone() -> None:
    for options in ({}, {"worker_concurrency": 3}, {"queue": None}):
        raw = declared(app_with(**options).tasks.values())["billing.charge"]
        assert "x-mainspring-options" not in msgspec.json.decode(raw)
    bare = Mainspring()
    bare.task("any")(lambda **payload: payload)
    assert declared(bare.tasks.values()) == {}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"priority": "urgent"}, "'urgent' is not a priority. Expected low, normal, high, critical, or 0 to 3."),
        ({"timeout": "soon"}, "timeout: 'soon' is not a duration"),
        ({"retry": {"tries": 3}}, r"retry\.tries: unknown field 'tries'"),
        ({"queue": 5}, r"queue: Expected a text, got a whole number\. Write a text with quotes\.\Z"),
        ({"retries": 2, "delivery": "at_most_once"}, "retries: at_most_once is never tried again"),
        ({"env": {"A": "b"}}, "env has an effect only on process tasks; add executor='process'"),
        ({"limits": {"output": 5, "cpu": "1m"}}, "limits.cpu has an effect only on process tasks"),
    ],
)
def test_an_option_that_no_job_could_have_is_told_at_once(options: Any, words: str) -> None:
    with pytest.raises(ValueError, match=rf"^task billing.charge: .*{words}"):
        app_with(**options)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, {"queue": "heavy", "retries": 7, "retry": {"backoff": "linear"}, "env": {"A": "1"}}),
        ({"queue": None, "at": "t"}, {"queue": "heavy", "retries": 7, "retry": {"backoff": "linear"},
                                      "env": {"A": "1"}, "at": "t"}),
        ({"retries": 1, "env": {"B": "2"}}, {"queue": "heavy", "retries": 1, "retry": {"backoff": "linear"},
                                             "env": {"A": "1", "B": "2"}}),
        ({"retry": {"max_attempts": 2, "base": None}}, {"queue": "heavy", "env": {"A": "1"},
                                                        "retry": {"backoff": "linear", "max_attempts": 2}}),
        ({"delivery": "at_most_once"}, {"queue": "heavy", "env": {"A": "1"}, "delivery": "at_most_once",
                                        "retry": {"backoff": "linear"}}),
    ],
)  # fmt: skip
def test_the_words_of_a_submission_are_laid_over_them(given: Any, expected: Any) -> None:
    options = {"queue": "heavy", "retries": 7, "retry": {"backoff": "linear"}, "env": {"A": "1"}}
    assert with_defaults(given, options) == expected
    assert options["retry"] == {"backoff": "linear"}, "the task keeps its own"


def test_they_hold_in_a_box_for_a_job_submitted_by_name() -> None:
    with mainspring.testing.run(app_with(queue="heavy", timeout="5m", retries=2)) as box:
        for client_made in (box.client.submit(task="billing.charge"), box.client.add_job("billing.charge", LATER)):
            found = box.client.job(client_made.job_id)
            assert (found.queue, found.timeout, found.max_retries) == ("heavy", 300.0, 2)
        own = box.client.job(box.client.submit(task="billing.charge", queue="light", schedule="manual").job_id)
        assert (own.queue, own.timeout) == ("light", 300.0)
        assert box.client.update_job(own.job_id, description="x").queue == "light"
        assert box.client.update_job(own.job_id, queue=None).queue == "heavy"
        with pytest.raises(InvalidInput, match="does not fit"):
            box.client.update_job(own.job_id, payload={"account": 5})
        made = box.client.submit_batch([{"task": "billing.charge"}, {"task": "billing.charge", "retries": 0}])
        assert [box.client.job(job_id).max_retries for job_id in made.job_ids] == [2, 0]


def test_a_repeat_in_a_box_is_the_same_job() -> None:
    with mainspring.testing.run(app_with(queue="heavy")) as box:
        first, again = (box.client.submit(task="billing.charge", idempotency_key="k") for _ in range(2))
        assert first.job_id == again.job_id
