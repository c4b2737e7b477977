"""The text of an error: what is wrong, where, and what to do. Nothing is repeated."""

from __future__ import annotations

import pickle

import pytest

from mainspring.domain.durations import parse_duration
from mainspring.domain.errors import InvalidInput, MainspringError


def test_a_bad_duration_says_what_to_write() -> None:
    with pytest.raises(InvalidInput) as refused:
        parse_duration("5 minutes", "timeout")

    assert refused.value.in_sentences() == (
        'timeout: \'5 minutes\' is not a duration. Write "90s", "15m", "1h30m" or a number of seconds.'
    )
    assert str(refused.value) == refused.value.in_sentences(), "a traceback and a log show what to do"
    assert not hasattr(refused.value, "__notes__"), "and they do not show it twice"


@pytest.mark.parametrize(
    ("error", "sentences"),
    [
        (MainspringError("the database is unavailable"), "the database is unavailable."),
        (MainspringError("the body is empty", field="$", expected="a JSON object"),
         "the body is empty. Expected a JSON object."),
        (MainspringError("the batch has 3 jobs", field="jobs", expected="at most 2", hint="send less"),
         "the batch has 3 jobs. Expected at most 2. Send less."),
        (MainspringError("unknown field 'paylod'", field="paylod", hint="did you mean 'payload'?"),
         "unknown field 'paylod'. Did you mean 'payload'?"),
        (MainspringError("'x' is not a date", field="at"), "at: 'x' is not a date."),
    ],
)  # fmt: skip
def test_an_error_in_sentences(error: MainspringError, sentences: str) -> None:
    assert error.in_sentences() == sentences


def test_the_text_of_an_error_has_field_expectation_and_hint() -> None:
    assert str(MainspringError("the database is unavailable")) == "the database is unavailable"
    assert str(MainspringError("'x' is not a date", field="at")) == "at: 'x' is not a date"
    error = MainspringError("unknown field 'paylod'", field="paylod", hint="did you mean 'payload'?")
    assert str(error) == "unknown field 'paylod'. Did you mean 'payload'?"
    assert (error.detail, error.args) == ("unknown field 'paylod'", ("unknown field 'paylod'",))
    assert pickle.loads(pickle.dumps(MainspringError("gone"))).detail == "gone"
