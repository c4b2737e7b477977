"""What follows a failure: the first rule that matches, the wish of the task, and the limit of attempts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainspring.domain.retry import (
    GIVE_UP,
    LONGEST_DELAY,
    RETRY,
    RetryPolicy,
    RetryRule,
    RetryVerdict,
    after_failure,
)
from mainspring.wire.execution import Cause
from mainspring.wire.states import BACKOFFS

DECLINED = Cause(errors=["CardDeclined", "app.billing.CardDeclined", "PaymentError", "app.billing.PaymentError"])


def middle() -> float:
    """The random number at which jitter changes nothing."""
    return 0.5


def verdict(*rules: RetryRule, attempt: int = 1, **fields: object) -> RetryVerdict:
    policy = RetryPolicy(backoff="constant", base=2.0, rules=list(rules))
    return after_failure(policy, attempt, 4, middle, **fields)  # type: ignore[arg-type]


def test_without_rules_it_is_tried_again_while_tries_are_left() -> None:
    assert verdict() == RetryVerdict(2.0)
    assert verdict(attempt=3, cause=DECLINED) == RetryVerdict(2.0)
    assert verdict(attempt=4) == RetryVerdict(None, "failed 4 times, no tries left")
    assert verdict(wanted=False) == RetryVerdict(None, "failed and asked not to be retried")


@pytest.mark.parametrize("name", ["CardDeclined", "app.billing.CardDeclined", "PaymentError"])
def test_a_rule_names_a_class_or_a_base_of_it_short_or_in_full(name: str) -> None:
    ended = verdict(RetryRule(GIVE_UP, errors=["KeyError", name]), cause=DECLINED)
    assert ended == RetryVerdict(None, f"failed with {name}: rule retry.rules[0] gives up")


def test_a_short_name_matches_a_class_that_only_its_full_name_was_sent_of() -> None:
    cause = Cause(errors=["app.billing.CardDeclined"])
    assert verdict(RetryRule(GIVE_UP, errors=["CardDeclined"]), cause=cause).delay is None
    assert verdict(RetryRule(GIVE_UP, errors=["Declined"]), cause=cause).delay == 2.0
    assert verdict(RetryRule(GIVE_UP, errors=["other.CardDeclined"]), cause=cause).delay == 2.0
    assert verdict(RetryRule(GIVE_UP, errors=["builtins.OSError"]), cause=Cause(errors=["OSError"])).delay is None


def test_a_rule_names_exit_codes() -> None:
    rule = RetryRule(GIVE_UP, exit_codes=[2, -9])
    assert verdict(rule, cause=Cause(exit_code=2)).reason == "failed with exit code 2: rule retry.rules[0] gives up"
    assert verdict(rule, cause=Cause(exit_code=-9)).delay is None
    assert verdict(rule, cause=Cause(exit_code=1)) == RetryVerdict(2.0)
    assert verdict(rule, cause=Cause(http_status=502)) == RetryVerdict(2.0)


def test_a_rule_names_http_statuses_and_classes_of_them() -> None:
    rule = RetryRule(GIVE_UP, http_statuses=["5xx", 404])
    for status in (404, 500, 599):
        assert verdict(rule, cause=Cause(http_status=status)).reason == (
            f"failed with HTTP status {status}: rule retry.rules[0] gives up"
        )
    for status in (403, 405, 429, 200):
        assert verdict(rule, cause=Cause(http_status=status)) == RetryVerdict(2.0)


def test_the_first_rule_that_matches_decides() -> None:
    give_up, again = RetryRule(GIVE_UP, errors=["PaymentError"]), RetryRule(RETRY, errors=["CardDeclined"], after=60.0)
    assert verdict(again, give_up, cause=DECLINED) == RetryVerdict(60.0)
    assert verdict(give_up, again, cause=DECLINED).delay is None
    assert "retry.rules[1] gives up" in verdict(RetryRule(RETRY, exit_codes=[1]), give_up, cause=DECLINED).reason


def test_a_rule_that_retries_overrides_what_the_executor_makes_of_a_status() -> None:
    cause = Cause(http_status=404)
    assert verdict(cause=cause, wanted=False).delay is None
    assert verdict(RetryRule(RETRY, http_statuses=["4xx"]), cause=cause, wanted=False) == RetryVerdict(2.0)


@pytest.mark.parametrize("name", ["GiveUp", "BadPayload", "mainspring.sdk.errors.GiveUp"])
def test_no_rule_overrides_a_task_that_gives_up_or_cannot_take_its_payload(name: str) -> None:
    rule = RetryRule(RETRY, errors=["GiveUp", "BadPayload", "Exception"])
    assert verdict(rule, cause=Cause(errors=[name, "Exception"]), wanted=False).delay is None


def test_a_task_that_asks_to_be_tried_again_is_whatever_the_rules_say_while_tries_are_left() -> None:
    cause = Cause(errors=["Retry", "mainspring.sdk.errors.Retry", "Exception"])
    rule = RetryRule(GIVE_UP, errors=["Exception"])
    assert verdict(rule, cause=cause, retry_after=30.0) == RetryVerdict(30.0)
    assert verdict(rule, cause=cause, attempt=4).delay is None
    own_class_of_that_name = Cause(errors=["Retry", "app.Retry", "Exception"])
    assert verdict(rule, cause=own_class_of_that_name).delay is None


def test_of_all_delays_asked_for_the_longest_counts() -> None:
    rule = RetryRule(RETRY, exit_codes=[1], after=5.0)
    cause = Cause(exit_code=1)
    assert verdict(rule, cause=cause).delay == 5.0
    assert verdict(rule, cause=cause, retry_after=7.0).delay == 7.0
    assert verdict(rule, cause=cause, retry_after=1.0).delay == 5.0
    assert verdict(retry_after=-3.0).delay == 2.0
    assert verdict(retry_after=1e300).delay == LONGEST_DELAY


names = st.sampled_from(["ValueError", "OSError", "a.B", "B", "GiveUp"])
rules = st.one_of(
    st.builds(RetryRule, st.sampled_from([RETRY, GIVE_UP]), errors=st.lists(names, min_size=1, max_size=3)),
    st.builds(RetryRule, st.sampled_from([RETRY, GIVE_UP]), exit_codes=st.lists(st.integers(0, 3), min_size=1)),
    st.builds(
        RetryRule,
        st.sampled_from([RETRY, GIVE_UP]),
        http_statuses=st.lists(st.sampled_from([404, 429, 503, "4xx", "5xx"]), min_size=1),
    ),
    st.builds(RetryRule, st.just(RETRY), exit_codes=st.just([0, 1]), after=st.floats(0, 1e6)),
)
policies = st.builds(
    RetryPolicy,
    max_attempts=st.integers(1, 20),
    backoff=st.sampled_from(BACKOFFS),
    base=st.floats(0, 1e4),
    cap=st.floats(0, 1e5),
    jitter=st.floats(0, 1),
    rules=st.lists(rules, max_size=5),
)
causes = st.one_of(
    st.none(),
    st.builds(Cause, errors=st.lists(names, max_size=3)),
    st.builds(Cause, exit_code=st.integers(0, 3)),
    st.builds(Cause, http_status=st.sampled_from([200, 404, 429, 503])),
)
chances = st.floats(0, 1, exclude_max=True)


@given(policies, st.integers(1, 25), st.integers(1, 20), causes, st.booleans(), st.none() | st.floats(0, 1e9), chances)
def test_tries_bind_and_a_delay_is_never_less_than_asked_for_nor_more_than_a_year(
    policy: RetryPolicy,
    spent: int,
    most: int,
    cause: Cause | None,
    wanted: bool,
    retry_after: float | None,
    chance: float,
) -> None:
    said = after_failure(policy, spent, most, lambda: chance, cause=cause, wanted=wanted, retry_after=retry_after)
    if said.delay is None:
        assert said.reason
        return
    assert spent < most
    backoff = policy.delay(spent, lambda: chance)
    assert min(backoff, LONGEST_DELAY) <= said.delay <= LONGEST_DELAY
    assert said.delay >= min(retry_after or 0.0, LONGEST_DELAY)
    asked = [backoff, retry_after or 0.0, *(rule.after or 0.0 for rule in policy.rules)]
    assert said.delay <= max(asked)


@given(policies, causes, st.booleans())
def test_a_first_try_ends_only_by_a_rule_or_by_its_own_wish(
    policy: RetryPolicy, cause: Cause | None, wanted: bool
) -> None:
    said = after_failure(policy, 1, 2, middle, cause=cause, wanted=wanted)
    deciding = next((rule for rule in policy.rules if cause is not None and rule.match(cause)), None)
    given_up = not wanted and cause is not None and "GiveUp" in cause.errors
    expected = not given_up and (wanted if deciding is None else deciding.then == RETRY)
    assert (said.delay is not None) == expected
