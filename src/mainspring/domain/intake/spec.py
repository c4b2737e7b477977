"""Intake of the fields that the spec stores: timeout, retries, misfire, delivery, owner, description and labels."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, TypeVar

from mainspring.domain.durations import parse_duration
from mainspring.domain.errors import InvalidInput
from mainspring.domain.intake.dependencies import read_names, read_on_upstream_failure, read_rule
from mainspring.domain.intake.execution import check_statuses, read_setup
from mainspring.domain.intake.limits import read_concurrency
from mainspring.domain.intake.plain import NONE_GIVEN, plain_given, read_plain
from mainspring.domain.intake.rates import read_breaker, read_rates
from mainspring.domain.intake.unique import read_unique
from mainspring.domain.job import DEFAULT_SPEC, Delivery, Spec
from mainspring.domain.notify.rules import check_notify
from mainspring.domain.payload_keys import read_search
from mainspring.domain.retry import DEFAULT_RETRY, GIVE_UP, RETRY, RetryPolicy, RetryRule
from mainspring.domain.schedules.misfire import DEFAULT_MISFIRE, MisfirePolicy
from mainspring.domain.sizes import parse_size
from mainspring.domain.texts import check_line, check_prose, shown
from mainspring.kernel.config import MAX_PAYLOAD_BYTES
from mainspring.kinds.registry import TaskKind
from mainspring.wire.fields import LONGEST_NOTE, bounds_of
from mainspring.wire.jobs import JobRequest, MisfireIn, RetryIn, RetryRuleIn
from mainspring.wire.limits import ConcurrencyIn
from mainspring.wire.states import BACKOFFS, MISFIRE_POLICIES

T = TypeVar("T")

_LEAST_TIMEOUT, _MOST_TIMEOUT = bounds_of("timeout")
_, _MAX_ATTEMPTS = bounds_of("retry.max_attempts")
_BACKOFFS_OF_OTHERS = {  # what other schedulers call them
    **dict.fromkeys(("fixed", "static", "none"), "did you mean 'constant'?"),
    **dict.fromkeys(("exp", "expo", "exponential_backoff"), "did you mean 'exponential'?"),
}
_LEAST_JITTER, _MOST_JITTER = bounds_of("retry.jitter")
_MAX_RULES = 32
_MAX_NAMED = 256  # the number of exit codes
_LEAST_MISFIRE_CAP, _MAX_MISFIRE_CAP = bounds_of("misfire.cap")
_, _MAX_LABELS = bounds_of("labels")
_LONGEST_LABEL = 200


def read_spec(request: JobRequest, kind: TaskKind | None, call: Any) -> Spec:
    setup = read_setup(request, kind, call)
    command = None if kind is None or kind.in_setup else call
    if (
        command is None
        and setup is None
        and request.timeout is None
        and request.retry is None
        and request.retries is None
        and request.max_retries is None
        and request.misfire is None
        and request.delivery is None
        and request.owner is None
        and request.description is None
        and request.labels is None
        and not request.search
        and request.idempotency_key is None
        and request.keep_payload is None
        and (request.rate_limit is None or request.rate_limit is False)
        and request.rate is None
        and not request.circuit_breaker
        and not request.unique
        and not request.depends_on
        and request.rule is None
        and request.on_upstream_failure is None
        and not request.notify
        and plain_given(request) == NONE_GIVEN
    ):
        limit = request.concurrency
        if limit is None or limit is False:
            return DEFAULT_SPEC
        if type(limit) is ConcurrencyIn:
            return _limited(limit)
    delivery = _delivery(request.delivery)
    timeout = DEFAULT_SPEC.timeout
    if request.timeout is not None:
        timeout = parse_duration(request.timeout, "timeout", least=_LEAST_TIMEOUT, most=_MOST_TIMEOUT)
    plain = read_plain(request)
    _check_notes(request)
    return Spec(
        timeout=timeout,
        retry=_retry(request, delivery),
        misfire=_misfire(request.misfire),
        delivery=delivery,
        command=command,
        setup=setup,
        owner=request.owner,
        description=request.description,
        labels=request.labels or None,
        search=read_search(request.search),
        idempotency_key=request.idempotency_key,
        keep_payload=_kept_bytes(request.keep_payload),
        concurrency=None if request.concurrency is None else read_concurrency(request.concurrency),
        rate_limit=read_rates(request),
        circuit_breaker=read_breaker(request.circuit_breaker),
        unique=None if request.unique is None else read_unique(request.unique),
        depends_on=None if request.depends_on is None else read_names(request.depends_on, "depends_on") or None,
        rule=read_rule(request.rule),
        on_upstream_failure=read_on_upstream_failure(request.on_upstream_failure),
        notify=check_notify(request.notify) if request.notify else None,
        **plain,
    )


@lru_cache(maxsize=1000)
def _limited(limit: ConcurrencyIn) -> Spec:
    """The spec of a job that gives nothing else. Jobs of a task usually share their limit."""
    return Spec(concurrency=read_concurrency(limit))


def default_attempts(delivery: Delivery) -> int:
    return DEFAULT_RETRY.max_attempts if delivery is Delivery.AT_LEAST_ONCE else 1


def default_cap(base: float) -> float:
    """The default cap: 10 minutes, or the base if that is longer."""
    return max(DEFAULT_RETRY.cap, base)


def concurrency_as_given(spec: Spec) -> list[ConcurrencyIn] | None:
    """The request that says what `spec` says."""
    if spec.concurrency is None:
        return None
    return [
        ConcurrencyIn(item.limit, item.key, item.per, "strict" if item.strict else None) for item in spec.concurrency
    ]


def _check_notes(request: JobRequest) -> None:
    if request.idempotency_key is not None:
        check_line(request.idempotency_key, "idempotency_key")
    for text, field in ((request.owner, "owner"), (request.description, "description")):
        if text is not None and len(text) > LONGEST_NOTE:
            raise InvalidInput(f"{field} is too long", field=field, expected=f"at most {LONGEST_NOTE:,} characters")
    if request.owner is not None:
        check_line(request.owner, "owner")
    if request.description is not None:
        check_prose(request.description, "description")
    if request.labels is None:
        return
    if len(request.labels) > _MAX_LABELS:
        raise InvalidInput("too many labels", field="labels", expected=f"at most {_MAX_LABELS}")
    for label, value in request.labels.items():
        if not 1 <= len(label) <= _LONGEST_LABEL or len(value) > _LONGEST_LABEL:
            raise InvalidInput(
                f"the label {shown(label)} is empty or too long",
                field="labels",
                expected=f"names of 1 to {_LONGEST_LABEL} characters, values of at most {_LONGEST_LABEL}",
            )
        check_line(label, "labels")
        check_line(value, "labels")


def _delivery(word: str | None) -> Delivery:
    if word is None:
        return Delivery.AT_LEAST_ONCE
    try:
        return Delivery(word.lower())
    except ValueError:
        raise InvalidInput(
            f"{shown(word)} is not a delivery guarantee", field="delivery", expected="at_least_once or at_most_once"
        ) from None


def _kept_bytes(given: bool | int | str | None) -> int:
    """Up to how many bytes a payload is kept."""
    if given is None:
        return DEFAULT_SPEC.keep_payload
    if isinstance(given, bool):
        return MAX_PAYLOAD_BYTES if given else 0
    hint = 'write true, false, a size such as "64KiB", or a number of bytes'
    return parse_size(given, "keep_payload", least=0, most=MAX_PAYLOAD_BYTES, hint=hint)


def _retry(request: JobRequest, delivery: Delivery) -> RetryPolicy:
    attempts = _attempts(request, delivery)
    given = request.retry
    if given is None:
        return DEFAULT_RETRY if attempts == DEFAULT_RETRY.max_attempts else RetryPolicy(max_attempts=attempts)
    backoff = DEFAULT_RETRY.backoff if given.backoff is None else given.backoff.lower()
    if backoff not in BACKOFFS:
        raise InvalidInput(
            f"{shown(given.backoff)} is not a backoff",
            field="retry.backoff",
            expected=", ".join(BACKOFFS),
            hint=_BACKOFFS_OF_OTHERS.get(str(given.backoff).lower()),
        )
    jitter = DEFAULT_RETRY.jitter if given.jitter is None else given.jitter
    if not _LEAST_JITTER <= jitter <= _MOST_JITTER:
        raise InvalidInput(f"{shown(jitter)} is out of range", field="retry.jitter", expected="a share from 0 to 1")
    base = DEFAULT_RETRY.base if given.base is None else parse_duration(given.base, "retry.base")
    cap = default_cap(base) if given.cap is None else parse_duration(given.cap, "retry.cap")
    if given.rules is not None and len(given.rules) > _MAX_RULES:
        raise InvalidInput("too many rules", field="retry.rules", expected=f"at most {_MAX_RULES}")
    rules = [_rule(rule, f"retry.rules[{index}]") for index, rule in enumerate(given.rules or [])]
    return RetryPolicy(attempts, backoff, base, cap, jitter, rules)


def _rule(given: RetryRuleIn, field: str) -> RetryRule:
    """One retry rule: which failures match, and what follows them."""
    named = [kind for kind in ("error", "exit_code", "http_status") if getattr(given, kind) is not None]
    if len(named) != 1:
        raise InvalidInput(
            "a rule matches one kind of failure", field=field, expected="one of error, exit_code and http_status"
        )
    if given.then is None or given.then.lower() not in (RETRY, GIVE_UP):
        raise InvalidInput(
            f"{shown(given.then)} is not an action", field=f"{field}.then", expected=f"{RETRY} or {GIVE_UP}"
        )
    then = given.then.lower()
    if given.after is not None and then == GIVE_UP:
        raise InvalidInput("after has no effect with give_up", field=f"{field}.after", hint="leave it out")
    if getattr(given, named[0]) in ("", []):
        raise InvalidInput(
            "the rule names no failure",
            field=f"{field}.{named[0]}",
            hint="name a failure, or leave the rule out",
        )
    errors, codes = _as_list(given.error), _as_list(given.exit_code)
    if len(errors or codes or ()) > _MAX_NAMED:
        raise InvalidInput(
            "the rule names too many failures", field=f"{field}.{named[0]}", expected=f"at most {_MAX_NAMED}"
        )
    for error in errors or ():
        check_line(error, f"{field}.error")
        if not 1 <= len(error) <= _LONGEST_LABEL:
            raise InvalidInput(
                f"{shown(error)} is not a class name", field=f"{field}.error", expected="a name such as ValueError"
            )
    for code in codes or ():
        if not -64 <= code <= 255 or code == 0:
            raise InvalidInput(
                f"{shown(code)} is not the exit code of a failure",
                field=f"{field}.exit_code",
                expected="1 to 255, or a negative signal number such as -9",
            )
    statuses: list[int | str] | None = _as_list(given.http_status)
    check_statuses(statuses or [], f"{field}.http_status")
    return RetryRule(
        then,
        errors=errors,
        exit_codes=codes,
        http_statuses=statuses,
        after=None if given.after is None else parse_duration(given.after, f"{field}.after"),
    )


def _as_list(value: T | list[T] | None) -> list[T] | None:
    return value if value is None or isinstance(value, list) else [value]


def _attempts(request: JobRequest, delivery: Delivery) -> int:
    """The number of attempts, including the first. Three fields can set it. A request may have only one of them."""
    counts = [
        (field, value, first)
        for field, value, first in (
            ("retries", request.retries, 1),
            ("max_retries", request.max_retries, 1),
            ("retry.max_attempts", None if request.retry is None else request.retry.max_attempts, 0),
        )
        if value is not None
    ]
    if not counts:
        return default_attempts(delivery)
    field, value, first = counts[0]
    if len(counts) > 1:
        raise InvalidInput(
            f"{field} and {counts[1][0]} both set the number of attempts", field=counts[1][0], hint="give one of them"
        )
    attempts = value + first
    if not 1 <= attempts <= _MAX_ATTEMPTS:
        raise InvalidInput(
            f"{shown(value)} is out of range",
            field=field,
            expected=f"a whole number from {1 - first} to {_MAX_ATTEMPTS - first}",
        )
    if attempts > 1 and delivery is Delivery.AT_MOST_ONCE:
        raise InvalidInput("at_most_once is never tried again", field=field, hint=f"leave it out or set {1 - first}")
    return attempts


def _misfire(given: MisfireIn | None) -> MisfirePolicy:
    if given is None:
        return DEFAULT_MISFIRE
    policy = DEFAULT_MISFIRE.policy if given.policy is None else given.policy.lower()
    if policy not in MISFIRE_POLICIES:
        raise InvalidInput(
            f"{shown(given.policy)} is not a policy", field="misfire.policy", expected=", ".join(MISFIRE_POLICIES)
        )
    grace = None if given.grace is None else parse_duration(given.grace, "misfire.grace")
    cap = DEFAULT_MISFIRE.cap if given.cap is None else given.cap
    if not _LEAST_MISFIRE_CAP <= cap <= _MAX_MISFIRE_CAP:
        raise InvalidInput(
            f"{shown(cap)} is out of range",
            field="misfire.cap",
            expected=f"a whole number from 1 to {_MAX_MISFIRE_CAP}",
        )
    return MisfirePolicy(policy, grace, cap)


def retry_as_given(spec: Spec) -> RetryIn:
    """The retry policy as a request. Values that equal the default are None, so that they follow other changes."""
    retry = retry_in_full(spec)
    if spec.retry.max_attempts == default_attempts(spec.delivery):
        retry.max_attempts = None
    if spec.retry.cap == default_cap(spec.retry.base):
        retry.cap = None
    return retry


def retry_in_full(spec: Spec) -> RetryIn:
    """The retry policy as a request, with all values."""
    retry = spec.retry
    return RetryIn(
        max_attempts=retry.max_attempts,
        backoff=retry.backoff,
        base=retry.base,
        cap=retry.cap,
        jitter=retry.jitter,
        rules=[
            RetryRuleIn(rule.errors, rule.exit_codes, rule.http_statuses, rule.then, rule.after) for rule in retry.rules
        ]
        or None,
    )


def misfire_as_given(spec: Spec) -> MisfireIn:
    return MisfireIn(spec.misfire.policy, spec.misfire.grace, spec.misfire.cap)
