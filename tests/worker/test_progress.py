"""Progress: the newest word of each run, at most twice a second, and none of a run that has ended."""

from __future__ import annotations

import threading
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import msgspec
import pytest

from mainspring.sdk.tasks.context import Context
from mainspring.wire.exchange import Progress
from mainspring.worker.exchange.progress import EVERY, ProgressReports
from mainspring.worker.execution.attempt import Attempt, key_of

from .exchange_server import an_order

NOW = 50.0


def an_attempt() -> Attempt:
    order = an_order()
    return Attempt(order, key_of(order), NOW)


def test_only_the_newest_is_sent_and_again_only_after_a_pause() -> None:
    book, attempt = ProgressReports(), an_attempt()
    assert book.due() == float("inf")
    book.note(attempt, 0.1, "one")
    book.note(attempt, 0.2, "two")
    assert book.due() <= NOW
    [word] = book.take(NOW)
    assert (word.run_id, word.fence, word.fraction, word.message) == (attempt.order.run_id, 1, 0.2, "two")
    assert book.take(NOW) == []
    book.note(attempt, 0.3, "three")
    assert book.take(NOW + EVERY / 2) == []
    assert book.due() == NOW + EVERY
    assert [word.fraction for word in book.take(NOW + EVERY)] == [0.3]


class Share(float):
    """As numpy's are: a float that JSON encoders do not know."""


@pytest.mark.parametrize("share", [Share(0.5), Decimal("0.5"), 0.5])
def test_a_share_of_any_kind_can_be_put_on_the_wire(share: Any) -> None:
    book, attempt = ProgressReports(), an_attempt()

    class Said:
        def progress(self, fraction: float | None, message: str | None) -> None:
            book.note(attempt, fraction, message)

        def log(self, text: str) -> None: ...

    context = Context("job", "run", 1, datetime(2026, 11, 15, tzinfo=UTC), "task", _channel=Said())
    context.progress(share, 40)  # type: ignore[arg-type]
    words = msgspec.json.encode(book.take(NOW))
    [word] = msgspec.json.decode(words, type=list[Progress])
    assert (word.fraction, word.message) == (0.5, "40")
    for none in (float("nan"), float("inf"), -0.1, "much"):
        with pytest.raises(ValueError):
            context.progress(none)  # type: ignore[arg-type]


def test_words_without_a_share_leave_the_share_as_it_was() -> None:
    book, attempt = ProgressReports(), an_attempt()
    book.note(attempt, 0.4, "page 40")
    book.note(attempt, None, "thinking")
    [word] = book.take(NOW)
    assert (word.fraction, word.message) == (0.4, "thinking")


def test_a_share_that_is_none_and_text_that_cannot_be_stored_do_no_harm() -> None:
    book, attempt = ProgressReports(), an_attempt()
    book.note(attempt, float("nan"), "a\x00b\ud800" + "x" * 2000)
    [word] = book.take(NOW)
    assert word.fraction is None
    assert word.message is not None
    assert word.message.startswith("a\ufffdb?x") and len(word.message) == 1000


def test_a_run_that_has_ended_says_nothing_more() -> None:
    book, attempt, other = ProgressReports(), an_attempt(), an_attempt()
    book.note(attempt, 0.1, None)
    book.note(other, 0.1, None)
    attempt.reported = True
    book.forget(other)
    assert book.take(NOW) == []
    assert book.due() == float("inf")


def test_what_was_lost_on_the_way_is_sent_again() -> None:
    book, attempt = ProgressReports(), an_attempt()
    book.note(attempt, 0.1, None)
    book.take(NOW)
    book.put_back([attempt])
    assert [word.fraction for word in book.take(NOW + EVERY)] == [0.1]


def test_threads_may_talk_at_once_and_the_last_word_is_kept() -> None:
    book, attempts = ProgressReports(), [an_attempt() for _ in range(4)]

    def talk(attempt: Attempt) -> None:
        for step in range(1001):
            book.note(attempt, step / 1000, str(step))

    threads = [threading.Thread(target=talk, args=(attempt,)) for attempt in attempts]
    for thread in threads:
        thread.start()
    now, seen = NOW, {}
    while any(thread.is_alive() for thread in threads) or book.due() < float("inf"):
        now += EVERY
        seen.update({word.run_id: word.message for word in book.take(now)})
    assert seen == {attempt.order.run_id: "1000" for attempt in attempts}
