"""What a worker sends has no secrets: not as they are, not encoded, and not in pieces."""

from __future__ import annotations

import base64
import html
import json
import re
from urllib.parse import quote, quote_plus

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mainspring.wire.execution import Cause
from mainspring.worker.execution.attempt import AttemptEnding, failed
from mainspring.worker.execution.redaction import Redactor

VALUES = [
    "correct horse battery",
    "pä$$wörd/+&=?#%'\"\\x",
    "-----BEGIN KEY-----\nMIIBVgIBADANBgkq\nhkiG9w0BAQEFAASC\n-----END KEY-----\n",
    "12345678",
    base64.b64encode(bytes(range(255, 30, -1))).decode() + "&é",
]
redactors = {value: Redactor([value]) for value in VALUES}


def encodings(value: str) -> list[bytes]:
    whole = value.strip()
    data = whole.encode()
    texts = [whole, quote(whole), quote(whole, safe=""), quote_plus(whole)]
    texts.append(re.sub("%..", lambda found: found[0].lower(), quote(whole, safe="")))
    if len(data) <= 256:
        texts.append("".join(f"%{byte:02x}" for byte in data))
    texts += [json.dumps(whole)[1:-1], repr(whole)[1:-1], html.escape(whole), data.hex()]
    ways = (base64.b64encode, base64.urlsafe_b64encode, base64.encodebytes)
    in_base64 = [encode(before + data + b"tail") for before in (b"", b"a", b"ab", b"user:") for encode in ways]
    return [text.encode() for text in texts] + in_base64


def traces(value: str, shown: bytes) -> list[bytes]:
    """Parts of the value that are left, of eight bytes or more, as they are or decoded."""
    data = value.strip().encode()
    parts = [data[at : at + 12] for at in range(0, max(1, len(data) - 12), 5)]
    return [part for part in parts if len(part) >= 8 and part in shown]


@pytest.mark.parametrize("value", VALUES)
def test_a_value_is_hidden_in_each_of_its_encodings(value: str) -> None:
    for encoded in encodings(value):
        shown = redactors[value].data(b"before " + encoded + b" after")
        assert shown.startswith(b"before ") and shown.endswith(b" after")
        assert b"***" in shown and len(shown) < 60, (encoded, shown)
        assert traces(value, shown) == []


@pytest.mark.parametrize("value", VALUES)
@settings(max_examples=40)
@given(data=st.data())
def test_a_value_is_hidden_wherever_its_pieces_are_cut(value: str, data: st.DataObject) -> None:
    redactor = redactors[value]
    noise = st.sampled_from([b"", b"\n", b"corr", b"abc ", b"%", b"12345", value.encode()[:5], b"-----BEGIN "])
    text = b"".join(
        part
        for _ in range(data.draw(st.integers(1, 3)))
        for part in (data.draw(noise), data.draw(st.sampled_from(encodings(value))), data.draw(noise))
    )
    stream, at, shown = redactor.stream(), 0, b""
    while at < len(text):
        size = data.draw(st.integers(1, 40))
        shown += stream.feed(text[at : at + size])
        at += size
    shown += stream.end()
    assert traces(value, shown) == []
    assert all(encoded not in shown for encoded in encodings(value))


@given(st.lists(st.binary(max_size=30), max_size=8))
def test_what_has_no_value_is_not_changed(pieces: list[bytes]) -> None:
    stream = Redactor(["correct horse battery"]).stream()
    assert b"".join([*map(stream.feed, pieces), stream.end()]) == b"".join(pieces)


def test_nothing_is_held_back_that_cannot_be_a_value() -> None:
    stream = Redactor(["correct horse battery"]).stream()
    assert stream.feed(b"hello\n") == b"hello\n"
    assert stream.feed(b"correct ") == b""
    assert stream.feed(b"answer\n") == b"correct answer\n"


def test_most_of_a_value_at_the_end_is_hidden_too() -> None:
    stream = Redactor(["correct horse battery"]).stream()
    assert stream.feed(b"it is correct horse batt") + stream.end() == b"it is ***"


def test_two_secrets_of_one_run_are_hidden() -> None:
    redactor = Redactor(["first-secret", "second-secret"])
    assert redactor.text("a first-secret b second-secret c") == "a *** b *** c"


def test_results_stay_json() -> None:
    redactor = Redactor(['say "hello" twice', "12345678"])
    value = {
        "text": 'x say "hello" twice y',
        "list": [12345678, 123456789, 0.5, None, True, "ok"],
        'say "hello" twice': {"url": quote_plus('say "hello" twice')},
    }
    hidden = msgspec.json.decode(redactor.json(msgspec.Raw(msgspec.json.encode(value))))
    assert hidden == {
        "text": "x *** y", "list": ["***", "***", 0.5, None, True, "ok"], "***": {"url": "***"},
    }  # fmt: skip
    split = msgspec.Raw(b'["ab","cd"]')
    assert bytes(Redactor(['ab","cd"]']).json(split)) == b'"***"'
    plain = msgspec.Raw(b'{"a": [1, 2.50]}')
    assert bytes(redactor.json(plain)) == bytes(plain)


def test_errors_are_hidden_also_where_they_were_shortened() -> None:
    secret = "s3cr3t-" + "abcdefghij" * 20
    redactor = Redactor([secret])
    ending = redactor.ending(failed("x" * 5000 + secret + "y" * 5000, cause=Cause(errors=[f"E{secret}"])))
    assert ending.error is not None and traces(secret, ending.error.encode()) == []
    for shift in range(0, 240, 7):  # the cut goes through the value
        shortened = redactor.ending(failed("x" * (2048 - shift) + secret + "y" * 9000)).error or ""
        assert traces(secret, shortened.encode()) == [], shift
        shortened = redactor.ending(failed("x" * 9000 + secret + "y" * (6139 - shift))).error or ""
        assert traces(secret, shortened.encode()) == [], shift
    assert ending.cause is not None and ending.cause.errors == ["E***"]


def test_an_ending_without_secrets_is_the_same() -> None:
    ending = AttemptEnding("FAILED", "no", retry=False, result=None, cause=Cause(exit_code=2), retry_after=3.0)
    assert Redactor(["correct horse battery"]).ending(ending) == ending


def test_its_text_has_no_value() -> None:
    assert "correct" not in repr(Redactor(["correct horse battery"]))
