"""The text of an error: what is wrong, where, and what to do. Nothing is repeated."""

from __future__ import annotations

import pytest

from mainspring.domain.durations import parse_duration
from mainspring.domain.errors import InvalidInput, MainspringError


def test_a_bad_duration_says_what_to_write() -> None:
    with pytest.raises(InvalidInput) as refused:
        parse_duration("5 minutes", "timeout")

    assert refused.value.in_sentences() == (
        'timeout: \'5 minutes\' is not a duration. Write "90s", "15m", "1h30m" or a number of seconds.'
    )
    assert refused.value.__notes__ == ['timeout: write "90s", "15m", "1h30m" or a number of seconds']


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
