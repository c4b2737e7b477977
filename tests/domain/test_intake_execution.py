"""Intake of the fields that executors read: HTTP calls, environment, limits, sandbox, labels and retry rules."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainspring.domain.errors import InvalidInput, MainspringError
from mainspring.domain.job import spec_from_text, spec_to_text
from mainspring.domain.retry import RetryRule
from mainspring.kinds.http.call import HttpCall, SuccessRule
from mainspring.wire.execution import ResourceLimits, RunSetup
from tests.domain.requests_as_sent import defined

URL = "https://example.com/hook"


def call(**fields: Any) -> dict[str, Any]:
    return {"http": {"url": URL, **fields}}


def shell(**fields: Any) -> dict[str, Any]:
    return {"command": "make", **fields}


def rule(**fields: Any) -> dict[str, Any]:
    return {"task": "a", "retry": {"rules": [fields]}}


@pytest.mark.parametrize(
    ("body", "setup"),
    [
        ({"task": "a"}, None),
        (shell(env={}, limits={}, sandbox="none"), None),
        (shell(env={"A": "1", "_b2": "two\nlines"}), RunSetup(env={"A": "1", "_b2": "two\nlines"})),
        (shell(limits={"memory": "512MB"}), RunSetup(limits=ResourceLimits(memory=512_000_000))),
        (
            shell(
                limits={"memory": 2**30, "cpu": "1m30s", "processes": 5, "files": 64, "output": "10MB", "disk": "1GB"}
            ),
            RunSetup(limits=ResourceLimits(2**30, 90.0, 5, 64, 10_000_000, 10**9)),
        ),
        (shell(limits={"output": 0}), RunSetup(limits=ResourceLimits(output=0))),
        (shell(sandbox="Bubblewrap"), RunSetup(sandbox="bubblewrap")),
        (shell(kill_grace="30s"), RunSetup(kill_grace=30.0)),
        (shell(kill_grace=0), RunSetup(kill_grace=0.0)),
        ({"task": "a", "limits": {"cpu": 5}}, RunSetup(limits=ResourceLimits(cpu=5.0))),
        (call(), RunSetup(http=HttpCall(URL, "GET"))),
        (call(body={"a": [1]}), RunSetup(http=HttpCall(URL, "POST", body={"a": [1]}))),
        (call(body=""), RunSetup(http=HttpCall(URL, "POST", body=""))),
        (call(body={"a": "\\u0000"}), RunSetup(http=HttpCall(URL, "POST", body={"a": "\\u0000"}))),
        (call(method="put", body=0), RunSetup(http=HttpCall(URL, "PUT", body=0))),
        (call(headers={"X-A": "b"}), RunSetup(http=HttpCall(URL, "GET", {"X-A": "b"}))),
        (call(follow_redirects=False), RunSetup(http=HttpCall(URL, "GET", follow_redirects=False))),
        (
            call(success={"status": [200, "3xx"], "json": "$.ok", "equals": None}),
            RunSetup(http=HttpCall(URL, "GET", success=SuccessRule([200, "3xx"], "$.ok", None))),
        ),
        ({"task": "http", "payload": {"url": URL}}, RunSetup(http=HttpCall(URL, "GET"))),
        (
            {**call(), "limits": {"output": "1MiB"}},
            RunSetup(http=HttpCall(URL, "GET"), limits=ResourceLimits(output=2**20)),
        ),
        ({"http": {"url": "http://[::1]:8080/a?b=c#d"}}, RunSetup(http=HttpCall("http://[::1]:8080/a?b=c#d", "GET"))),
        ({"http": {"url": "http://müller.example/ä"}}, RunSetup(http=HttpCall("http://müller.example/ä", "GET"))),
    ],
)
def test_a_setup_is_kept_and_survives_its_storing(body: dict[str, Any], setup: RunSetup | None) -> None:
    spec = defined(body).spec
    assert spec.setup == setup
    assert spec_from_text(spec_to_text(spec)) == spec


def test_equals_null_is_not_the_same_as_no_equals() -> None:
    for success, equals in (({"json": "$.a"}, msgspec.UNSET), ({"json": "$.a", "equals": None}, None)):
        setup = spec_from_text(spec_to_text(defined(call(success=success)).spec)).setup
        assert setup is not None and setup.http is not None and setup.http.success is not None
        assert setup.http.success.equals is equals


def test_run_timeout_and_required_labels() -> None:
    made = defined({"task": "a", "run_timeout": "1h", "required_labels": {"zone": "b", "gpu": "a100"}})
    assert made.spec.run_timeout == 3600.0
    assert made.required_labels is not None and list(made.required_labels.items()) == [("gpu", "a100"), ("zone", "b")]
    assert defined({"task": "a", "required_labels": {}}).required_labels is None


REFUSED: list[tuple[dict[str, Any], str, str]] = [
    # calls
    *(
        ({"http": {"url": url}}, "invalid_input", "http.url")
        for url in (
            "", "x", "example.com/hook", "ftp://example.com", "http://", "https:///x", "http://x:0/", "http://x:99999/",
            "http://x:y/", "http://[::1/", "http://a b/", "http://a\n/", "http://a\\@b/", "//x", "file:///etc/passwd",
            "http://user:secret@x/", "http://user@x/", "http://@x/", "http://x/" + "a" * 9000,
        )
    ),
    (call(method="BREW"), "invalid_input", "http.method"),
    (call(method="CONNECT"), "invalid_input", "http.method"),
    (call(method="GET /x"), "invalid_input", "http.method"),
    (call(method="GET", body={}), "invalid_input", "http.body"),
    (call(method="HEAD", body=1), "invalid_input", "http.body"),
    (call(body="x" * 262_145), "payload_too_large", "http.body"),
    (call(body={"a": "x" * 262_144}), "payload_too_large", "http.body"),
    (call(body="a\0b"), "invalid_input", "http.body"),
    (call(body={"a": ["\\\\\0"]}), "invalid_input", "http.body"),
    (call(body={"\0": 1}), "invalid_input", "http.body"),
    (call(success={"json": "$.a", "equals": "\0"}), "invalid_input", "http.success.equals"),
    (call(success={"json": "$.a", "equals": {"a": "\0"}}), "invalid_input", "http.success.equals"),
    (call(success={"json": "$.a", "equals": "x" * 65_537}), "payload_too_large", "http.success.equals"),
    ({"task": "http", "payload": {"url": URL, "body": "\0"}}, "invalid_input", "payload.body"),
    (call(headers={f"X-{n}": "" for n in range(65)}), "invalid_input", "http.headers"),
    (call(headers={"X A": "b"}), "invalid_input", "http.headers"),
    (call(headers={"": "b"}), "invalid_input", "http.headers"),
    (call(headers={"X": "b" * 9000}), "invalid_input", "http.headers"),
    (call(headers={"X": "b\r\nY: c"}), "invalid_input", "http.headers.X"),
    (call(headers={"X": "ü"}), "invalid_input", "http.headers.X"),
    (call(headers={"X": " b"}), "invalid_input", "http.headers.X"),
    (call(headers={"X-A": "1", "x-a": "2"}), "invalid_input", "http.headers"),
    *(
        (call(headers={name: "1"}), "invalid_input", f"http.headers.{name}")
        for name in ("Host", "content-length", "Transfer-Encoding", "traceparent", "Mainspring-Run-Id",
                     "Accept-Encoding", "Expect")
    ),
    (call(success={"status": [99]}), "invalid_input", "http.success.status"),
    (call(success={"status": ["6xx"]}), "invalid_input", "http.success.status"),
    (call(success={"status": ["200"]}), "invalid_input", "http.success.status"),
    (call(success={"status": [200] * 101}), "invalid_input", "http.success.status"),
    (call(success={"equals": 1}), "invalid_input", "http.success.json"),
    *(
        (call(success={"json": path}), "invalid_input", "http.success.json")
        for path in (
            "", "ok", "$.", "$[", "$.a b", "$['a'", "$.a[?]", "$[?@.a ==]", "$[?nope(@)]", "$.a\n", "$" + ".a" * 600,
            "$" + "[" * 600,
            # the cost of each of these grows faster than the response
            "$..a..b", "$[?match(@.a, '(a*)*b')]", "$[?search(@.a, 'x')]", "$[?@.a[?@.b]]", "$[?@.a == $.b]",
            "$[*,*][*,*][*,*][*,*]",
        )
    ),
    ({**call(), "task": "other"}, "invalid_input", "http"),
    ({**call(), "command": "echo"}, "invalid_input", "http"),
    ({**call(), "payload": {"a": 1}}, "invalid_input", "payload"),
    ({"task": "http"}, "invalid_input", "http"),
    ({"task": "http", "payload": {}}, "invalid_input", "payload"),
    ({"task": "http", "payload": {"url": URL, "verb": "GET"}}, "invalid_input", "payload"),
    ({"task": "http", "payload": {"url": "x"}}, "invalid_input", "payload.url"),
    ({"task": "http", "payload": {"url": URL, "method": "BREW"}}, "invalid_input", "payload.method"),
    ({**call(), "env": {"A": "1"}}, "invalid_input", "env"),
    ({**call(), "sandbox": "bubblewrap"}, "invalid_input", "sandbox"),
    ({**call(), "kill_grace": 1}, "invalid_input", "kill_grace"),
    ({**call(), "limits": {"memory": "1GB"}}, "invalid_input", "limits.memory"),
    ({**call(), "limits": {"cpu": 1}}, "invalid_input", "limits.cpu"),
    ({**call(), "limits": {"processes": 1}}, "invalid_input", "limits.processes"),
    ({**call(), "limits": {"files": 100}}, "invalid_input", "limits.files"),
    ({**call(), "limits": {"disk": "1GB"}}, "invalid_input", "limits.disk"),
    ({**call(), "limits": {"output": "65MiB"}}, "invalid_size", "limits.output"),
    # environment
    (shell(env={"1A": ""}), "invalid_input", "env"),
    (shell(env={"A=B": ""}), "invalid_input", "env"),
    (shell(env={"": ""}), "invalid_input", "env"),
    (shell(env={"A\n": ""}), "invalid_input", "env"),
    (shell(env={"Ä": ""}), "invalid_input", "env"),
    (shell(env={"A": "\x00"}), "invalid_input", "env.A"),
    (shell(env={"MAINSPRING_JOB_ID": "x"}), "invalid_input", "env.MAINSPRING_JOB_ID"),
    (shell(env={f"A{n}": "" for n in range(257)}), "invalid_input", "env"),
    (shell(env={"A": "x" * 70_000}), "invalid_input", "env"),
    # limits
    (shell(limits={"memory": "1MB"}), "invalid_size", "limits.memory"),
    (shell(limits={"memory": "x"}), "invalid_size", "limits.memory"),
    (shell(limits={"cpu": 0}), "invalid_duration", "limits.cpu"),
    (shell(limits={"cpu": "x"}), "invalid_duration", "limits.cpu"),
    (shell(limits={"processes": 0}), "invalid_input", "limits.processes"),
    (shell(limits={"processes": 10**7}), "invalid_input", "limits.processes"),
    (shell(limits={"files": 15}), "invalid_input", "limits.files"),
    (shell(limits={"output": -1}), "invalid_size", "limits.output"),
    (shell(limits={"output": "11GiB"}), "invalid_size", "limits.output"),
    (shell(limits={"disk": "1KB"}), "invalid_size", "limits.disk"),
    # the rest
    (shell(sandbox="docker"), "invalid_input", "sandbox"),
    (shell(sandbox=""), "invalid_input", "sandbox"),
    (shell(kill_grace="2h"), "invalid_duration", "kill_grace"),
    (shell(kill_grace=-1), "invalid_duration", "kill_grace"),
    (shell(run_timeout=0), "invalid_duration", "run_timeout"),
    (shell(run_timeout="31d"), "invalid_duration", "run_timeout"),
    (shell(required_labels={str(n): "x" for n in range(17)}), "invalid_input", "required_labels"),
    (shell(required_labels={"": "x"}), "invalid_input", "required_labels"),
    (shell(required_labels={"a": ""}), "invalid_input", "required_labels"),
    (shell(required_labels={"a": "x" * 201}), "invalid_input", "required_labels"),
    (shell(required_labels={"a": "\x00"}), "invalid_input", "required_labels"),
    # retry rules
    (rule(), "invalid_input", "retry.rules[0]"),
    (rule(then="retry"), "invalid_input", "retry.rules[0]"),
    (rule(error="A", exit_code=1, then="retry"), "invalid_input", "retry.rules[0]"),
    (rule(error="A"), "invalid_input", "retry.rules[0].then"),
    (rule(error="A", then="stop"), "invalid_input", "retry.rules[0].then"),
    (rule(error="A", then="give_up", after=5), "invalid_input", "retry.rules[0].after"),
    (rule(error="A", then="retry", after="soon"), "invalid_duration", "retry.rules[0].after"),
    (rule(error="A\x00", then="retry"), "invalid_input", "retry.rules[0].error"),
    (rule(error="", then="retry"), "invalid_input", "retry.rules[0].error"),
    (rule(error=[], then="retry"), "invalid_input", "retry.rules[0].error"),
    (rule(error=["A", ""], then="retry"), "invalid_input", "retry.rules[0].error"),
    (rule(exit_code=[], then="retry"), "invalid_input", "retry.rules[0].exit_code"),
    (rule(exit_code=0, then="retry"), "invalid_input", "retry.rules[0].exit_code"),
    (rule(exit_code=[1, 256], then="retry"), "invalid_input", "retry.rules[0].exit_code"),
    (rule(exit_code=-65, then="retry"), "invalid_input", "retry.rules[0].exit_code"),
    (rule(exit_code=[2] * 257, then="retry"), "invalid_input", "retry.rules[0].exit_code"),
    (rule(error=["A"] * 257, then="retry"), "invalid_input", "retry.rules[0].error"),
    (rule(http_status=600, then="retry"), "invalid_input", "retry.rules[0].http_status"),
    (rule(http_status="5x", then="retry"), "invalid_input", "retry.rules[0].http_status"),
    (rule(http_status="", then="retry"), "invalid_input", "retry.rules[0].http_status"),
    ({"task": "a", "retry": {"rules": [{"error": "A", "then": "retry"}] * 33}}, "invalid_input", "retry.rules"),
]  # fmt: skip


@pytest.mark.parametrize(("body", "code", "field"), REFUSED, ids=lambda value: str(value)[:60])
def test_bad_input_names_its_code_and_its_field(body: dict[str, Any], code: str, field: str) -> None:
    with pytest.raises(MainspringError) as refused:
        defined(body)
    assert (refused.value.code, refused.value.field) == (code, field)
    assert 0 < len(refused.value.detail) < 250, "the detail is a sentence, not the input"


def test_a_password_in_an_address_is_not_repeated() -> None:
    with pytest.raises(InvalidInput) as refused:
        defined({"http": {"url": "http://user:secret@x/"}})
    assert "secret" not in refused.value.detail and "Authorization" in (refused.value.hint or "")


def test_retry_rules_are_kept_in_order() -> None:
    given_rules = [
        {"error": "ValueError", "then": "GIVE_UP"},
        {"exit_code": [2, -9], "then": "retry", "after": "1m"},
        {"http_status": ["5xx", 429], "then": "retry"},
        {"http_status": 404, "then": "retry"},
    ]
    spec = defined({"task": "a", "retry": {"rules": given_rules}}).spec
    assert spec.retry.rules == [
        RetryRule("give_up", errors=["ValueError"]),
        RetryRule("retry", exit_codes=[2, -9], after=60.0),
        RetryRule("retry", http_statuses=["5xx", 429]),
        RetryRule("retry", http_statuses=[404]),
    ]
    assert spec_from_text(spec_to_text(spec)) == spec


@given(st.text(alphabet="$.[]?@*'\"()=<>!&|,:0a b-", max_size=30))
def test_no_path_is_an_accident(path: str) -> None:
    try:
        defined(call(success={"json": f"${path}"}))
    except InvalidInput as error:
        assert error.field == "http.success.json"


@pytest.mark.slow
@given(st.text(max_size=40))
def test_no_address_is_an_accident(url: str) -> None:
    for text in (url, f"http://{url}", f"https://x/{url}"):
        try:
            defined({"http": {"url": text}})
        except InvalidInput as error:
            assert error.field == "http.url"
