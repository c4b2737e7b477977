"""What processes send each other. Servers of other versions know these messages, so their spelling stays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from mainspring.kernel.ids import TenantId
from mainspring.operations.signals import Signals

pytestmark = pytest.mark.anyio

WORKER = UUID("0198c1de-0000-7000-8000-000000000001")


def publish_all(signals: Signals) -> None:
    signals.ready.publish({7: 2, 8: 1})
    signals.ready.publish({7: 1})
    signals.ready.publish({})
    signals.gates_freed.publish({3: 1})
    signals.gates_changed.publish()
    signals.due.publish()
    signals.stop.publish(WORKER)
    signals.tokens.publish(TenantId(5))


def heard_by(signals: Signals) -> list[tuple[str, Any]]:
    heard: list[tuple[str, Any]] = []

    def hear(name: str) -> Callable[..., None]:
        return lambda *said: heard.append((name, said))

    signals.ready.subscribe(hear("ready"))
    signals.gates_freed.subscribe(hear("freed"))
    signals.gates_changed.subscribe(hear("gates"))
    signals.due.subscribe(hear("due"))
    signals.stop.subscribe(hear("stop"))
    signals.tokens.subscribe(hear("tokens"))
    return heard


def a_process() -> Signals:
    return Signals(None)  # type: ignore[arg-type]


async def test_signals_of_a_moment_are_sent_together_in_words_that_all_versions_know() -> None:
    signals = a_process()
    publish_all(signals)
    assert signals._take_messages() == ["ready 7:3,8:1", "freed 3:1", "gates -", "due -", f"stop {WORKER}", "tokens 5"]
    assert signals._take_messages() == []


async def test_another_process_hears_what_this_one_has_said_and_does_not_say_it_again() -> None:
    here, there = a_process(), a_process()
    heard = heard_by(there)
    publish_all(here)
    for message in here._take_messages():
        there._on_notify(None, 0, "mainspring", f"{here._origin} {message}")
    assert heard == [
        ("ready", ({7: 3, 8: 1},)),
        ("freed", ({3: 1},)),
        ("gates", ()),
        ("due", ()),
        ("stop", (WORKER,)),
        ("tokens", (5,)),
    ]
    assert there._take_messages() == []


async def test_listeners_of_the_same_process_hear_it_at_once_and_only_once() -> None:
    signals = a_process()
    heard = heard_by(signals)
    signals.due.publish()
    [message] = signals._take_messages()
    signals._on_notify(None, 0, "mainspring", f"{signals._origin} {message}")
    assert heard == [("due", ())]


async def test_a_kind_of_a_newer_version_is_left_alone() -> None:
    signals = a_process()
    heard = heard_by(signals)
    signals._on_notify(None, 0, "mainspring", "somebody unheard-of 1,2")
    assert heard == []
