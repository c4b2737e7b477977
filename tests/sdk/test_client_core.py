"""The client core does no I/O, so its rules can be tested directly."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from mainspring import Mainspring
from mainspring.domain import errors
from mainspring.domain.errors import InvalidInput
from mainspring.kernel.clock import ManualClock
from mainspring.sdk.client import calls
from mainspring.sdk.client.core import (
    Call,
    NoAnswer,
    Patience,
    RetryingCall,
    ServerAnswer,
    checked_patience,
    encode,
    error_of,
    following,
    next_cursor,
)
from mainspring.wire.jobs import JobList
from tests.sdk.wire_samples import job, problem

START = datetime(2026, 1, 1, tzinfo=UTC)


def refused(status: int, code: str, headers: dict[str, str] | None = None, **more: Any) -> ServerAnswer:
    return ServerAnswer(status, json.dumps(problem(status, code, **more)).encode(), headers or {})


def retrying_call(call: Call[Any], clock: ManualClock | None = None, patience: float = 10.0) -> RetryingCall[Any]:
    clock = clock or ManualClock(START)
    return RetryingCall(call, url="http://here", clock=clock, patience=Patience.of(patience), chance=lambda: 0.5)


def test_the_pause_doubles_up_to_two_seconds_and_ends_with_the_patience() -> None:
    clock = ManualClock(START)
    retrying = retrying_call(calls.job("a"), clock, patience=6.0)
    pauses = []
    while (pause := retrying.next_delay(NoAnswer("refused", reached=False))) is not None:
        pauses.append(round(pause, 3))
        clock.advance(pause)
    assert pauses == [0.1, 0.2, 0.4, 0.8, 1.6, 2.0]
    with pytest.raises(errors.Unavailable, match="refused") as caught:
        retrying.result()
    assert caught.value.hint is not None and "mainspring up" in caught.value.hint


REFUSED = NoAnswer("Connection refused", reached=False, refused=True)
HANGS = NoAnswer("timed out", reached=True)


def seconds_until_given_up(patience: Patience, *outcomes: NoAnswer) -> float:
    """How long a call is repeated. The last outcome repeats."""
    clock, left = ManualClock(START), list(outcomes)
    begun = clock.monotonic()
    retrying = RetryingCall(calls.job("a"), url="http://here", clock=clock, patience=patience)
    while (pause := retrying.next_delay(left.pop(0) if len(left) > 1 else left[0])) is not None:
        clock.advance(pause)
    return clock.monotonic() - begun


def test_refused_connections_fail_within_two_seconds_unless_patience_is_given() -> None:
    assert 0.5 < seconds_until_given_up(Patience.of(None), REFUSED) <= 2
    assert 10 < seconds_until_given_up(Patience.of(None), HANGS) <= 15
    assert 10 < seconds_until_given_up(Patience.of(15), REFUSED) <= 15
    assert seconds_until_given_up(Patience.of(0), REFUSED) == 0


def test_a_server_that_restarts_has_two_seconds_from_its_first_refusal_and_longer_once_it_has_answered() -> None:
    assert 2 < seconds_until_given_up(Patience.of(None), HANGS, HANGS, HANGS, HANGS, HANGS, REFUSED) <= 6
    assert 10 < seconds_until_given_up(Patience.of(None).at_most(60, persist=True), REFUSED) <= 15
    assert seconds_until_given_up(Patience.of(None).at_most(1, persist=True), REFUSED) <= 1


@pytest.mark.parametrize("patience", ["30s", 30, 30.0, timedelta(seconds=30)])
def test_patience_is_a_duration(patience: Any) -> None:
    assert checked_patience(patience) == 30


@pytest.mark.parametrize("patience", ["soon", -1, float("nan"), float("inf")])
def test_patience_that_is_none_is_refused_by_name(patience: Any) -> None:
    for build in (checked_patience, lambda value: Mainspring(patience=value)):
        with pytest.raises(errors.InvalidInput) as caught:
            build(patience)
        assert caught.value.field == "patience"


def test_retry_after_is_waited_for_when_it_fits_and_not_when_it_does_not() -> None:
    busy = refused(503, "unavailable", {"retry-after": "3"})
    assert retrying_call(calls.job("a"), patience=10).next_delay(busy) == 3.0
    assert retrying_call(calls.job("a"), patience=2).next_delay(busy) is None


@pytest.mark.parametrize("status", [502, 503, 504])
def test_a_submission_is_sent_again_since_it_carries_a_key(status: int) -> None:
    assert retrying_call(calls.submit(task="t")).next_delay(refused(status, "unavailable")) is not None
    assert retrying_call(calls.submit(task="t")).next_delay(NoAnswer("broken", reached=True)) is not None


def test_what_could_run_twice_is_sent_again_only_when_it_never_reached_the_server() -> None:
    for call in (calls.run_now("a"), calls.submit_batch([{"task": "t"}])):
        assert retrying_call(call).next_delay(NoAnswer("broken", reached=True)) is None
        assert retrying_call(call).next_delay(refused(503, "unavailable")) is None
        assert retrying_call(call).next_delay(NoAnswer("refused", reached=False)) is not None
        assert retrying_call(call).next_delay(refused(429, "queue_full", {"retry-after": "1"})) == 1.0


def test_a_batch_in_which_every_job_has_a_key_may_be_repeated() -> None:
    batch = [{"task": "t", "idempotency_key": "1"}, {"task": "t", "idempotency_key": "2"}]
    assert calls.submit_batch(batch).repeatable
    assert not calls.submit_batch([*batch, {"task": "t"}]).repeatable


def test_a_guarded_change_is_not_repeated() -> None:
    assert calls.update_job("a", priority="high").repeatable
    assert not calls.update_job("a", if_version=3, priority="high").repeatable


@pytest.mark.parametrize(
    ("build", "given"),
    [
        (calls.cancel_run, ("r",)),
        (calls.retry_run, ("r",)),
        (calls.replay, ("r",)),
        (calls.discard, ("r",)),
        (calls.drain_worker, ("w",)),
        (calls.set_limit, (7, 3)),
        (calls.reset_breaker, (7,)),
        (calls.revoke_token, ("t",)),
        (calls.cancel_operation, ("o",)),
        (calls.change_backfill, ("b", 3)),
        (calls.pause_backfill, ("b",)),
        (calls.resume_backfill, ("b",)),
        (calls.cancel_backfill, ("b",)),
        (calls.cancel_workflow_run, ("r",)),
        (calls.rerun_workflow, ("r",)),
    ],
)
def test_a_change_names_the_tag_that_was_seen_and_is_not_repeated_then(
    build: Callable[..., Call[Any]], given: tuple[Any, ...]
) -> None:
    call = build(*given, if_match="seen-1")
    assert (call.headers, call.repeatable) == ((("If-Match", '"seen-1"'),), False)
    assert build(*given).headers == ()


@pytest.mark.parametrize(
    ("build", "given"),
    [
        (calls.run_now, ("a",)),
        (calls.start_workflow, ("a",)),
        (calls.pause_workflow, ("a",)),
        (calls.resume_workflow, ("a",)),
        (calls.delete_workflow, ("a",)),
        (calls.set_queue_limits, ("q",)),
        (calls.pause_queue, ("q",)),
        (calls.resume_queue, ("q",)),
        (calls.set_tenant_limits, ()),
        (calls.set_quotas, ("acme",)),
        (calls.pause_all, ()),
        (calls.resume_all, ()),
    ],
)
def test_a_change_names_the_version_that_was_seen(build: Callable[..., Call[Any]], given: tuple[str, ...]) -> None:
    call = build(*given, if_version=3)
    assert (call.headers, call.repeatable) == ((("If-Match", '"3"'),), False)


def test_refusals_are_final() -> None:
    for status in (400, 401, 404, 409, 422, 500):
        assert retrying_call(calls.job("a")).next_delay(refused(status, "some_code")) is None


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (422, "invalid_cron", errors.InvalidInput),
        (400, "invalid_json", errors.InvalidInput),
        (422, "not_supported_yet", errors.NotSupportedYet),
        (413, "payload_too_large", errors.PayloadTooLarge),
        (415, "unsupported_media_type", errors.WrongMediaType),
        (401, "unauthorized", errors.Unauthorized),
        (403, "forbidden", errors.Forbidden),
        (404, "not_found", errors.NotFound),
        (409, "job_exists", errors.Conflict),
        (409, "fenced", errors.Fenced),
        (412, "version_mismatch", errors.VersionMismatch),
        (503, "unavailable", errors.Unavailable),
        (418, "teapot", errors.MainspringError),
    ],
)
def test_a_problem_becomes_the_error_of_its_code_or_status(
    status: int, code: str, kind: type[errors.MainspringError]
) -> None:
    error = error_of(refused(status, code, detail="what", field="f", expected="e", hint="h"))
    assert type(error) is kind
    assert (error.code, error.detail, error.field, error.expected, error.hint) == (code, "what", "f", "e", "h")


def test_a_refused_batch_names_each_job_by_index() -> None:
    line = {"field": "jobs[3].schedule", "code": "invalid_cron", "detail": "bad", "index": 3}
    error = error_of(refused(422, "invalid_batch", errors=[line]))
    assert isinstance(error, errors.InvalidBatch)
    assert error.errors[0].index == 3


def test_a_page_of_a_proxy_is_named_by_its_status() -> None:
    error = error_of(ServerAnswer(502, b"<html>bad gateway</html>\nmore", {}))
    assert isinstance(error, errors.Unavailable)
    assert error.detail == "the server answered 502: <html>bad gateway</html>"


def test_a_good_answer_of_another_program_is_said_to_be_one() -> None:
    retrying = retrying_call(calls.job("a"))
    assert retrying.next_delay(ServerAnswer(200, b"<html>hi</html>", {})) is None
    with pytest.raises(errors.MainspringError, match="cannot be read") as caught:
        retrying.result()
    assert caught.value.code == "unexpected_answer"


@pytest.mark.parametrize(
    ("number", "read"), [("1e400", float("inf")), ("-1e400", float("-inf")), ("9" * 4301, float("inf"))]
)
def test_a_number_beyond_ours_in_one_payload_does_not_hide_the_list(number: str, read: float) -> None:
    jobs = json.dumps({"jobs": [job(payload={"a": 12345}), job(job_id="b")]}).replace("12345", number)
    retrying = retrying_call(calls.jobs())
    assert retrying.next_delay(ServerAnswer(200, jobs.encode(), {})) is None
    first, second = retrying.result().jobs
    assert first.payload == {"a": read} and second.job_id == "b" and first.created_at == second.created_at


def test_the_next_page_keeps_the_filters() -> None:
    first = calls.jobs(queue="heavy", limit=2)
    second = following(first, JobList(jobs=[], next="c1"))
    assert second is not None and second.params == (("queue", "heavy"), ("limit", "2"), ("cursor", "c1"))
    third = following(second, JobList(jobs=[], next="c2"))
    assert third is not None and third.params[-1] == ("cursor", "c2") and len(third.params) == 3
    assert following(third, JobList(jobs=[], next=None)) is None


def test_the_cursor_is_read_from_the_link_header() -> None:
    link = '</v1/jobs/a/runs?limit=2>; rel="first", </v1/jobs/a/runs?limit=2&cursor=a%2Fb>; rel="next"'
    assert next_cursor(ServerAnswer(200, b"[]", {"link": link})) == "a/b"
    assert next_cursor(ServerAnswer(200, b"[]", {})) is None


def test_ids_are_quoted_in_paths() -> None:
    assert calls.job("a/b c").path == "/v1/jobs/a%2Fb%20c"
    assert calls.pause("x").path == "/v1/jobs/x:pause"
    assert calls.pause("x").body == b"{}"


def test_what_cannot_be_json_is_refused_before_it_is_sent() -> None:
    with pytest.raises(errors.InvalidInput, match="JSON"):
        calls.submit(task="t", payload={"x": object()})


def test_a_value_that_json_does_not_have_is_named_by_its_place() -> None:
    with pytest.raises(InvalidInput) as refused:
        encode({"task": "pack", "payload": {"order": 1, "boxes": [{"size": 3}, {"size": object()}]}})
    assert refused.value.field == "payload.boxes[1].size"
