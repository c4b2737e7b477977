"""A call in a thread is broken off where it stands; what the thread does next is not."""

from __future__ import annotations

import itertools
import random
import threading
from collections.abc import Callable
from functools import partial

from mainspring.worker.execution.interruption import Halted, Interruption


class Thread:
    """Makes calls one after the other, as the threads of a pool do; `hurt` is what was raised outside of them."""

    def __init__(self, work: Callable[[Interruption], str], times: int) -> None:
        self.results: list[str] = []
        self.hurt: list[BaseException] = []
        self.current = Interruption()
        self._work, self._times = work, times
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            for _ in range(self._times):
                interruption = self.current = Interruption()
                self.results.append(interruption.run(partial(self._work, interruption), "broken off"))
                for _ in range(50):  # what a pool does between two calls
                    threading.get_ident()
        except BaseException as error:  # noqa: BLE001 - to be shown by the test
            self.hurt.append(error)

    def ended(self, within: float = 20.0) -> bool:
        self._thread.join(within)
        return not self._thread.is_alive()


def spin(_interruption: Interruption) -> str:
    while True:
        pass


def test_a_loop_without_end_is_broken_off() -> None:
    thread = Thread(spin, 3)
    while not thread.ended(0.005):
        thread.current.interrupt()
    assert thread.results == ["broken off"] * 3
    assert not thread.hurt


def test_an_interruption_that_comes_as_a_call_ends_hits_nothing_else() -> None:
    def short(_interruption: Interruption) -> str:
        return str(sum(range(random.randrange(300))))

    thread = Thread(short, 30_000)
    while not thread.ended(0.0):
        thread.current.interrupt()
    assert len(thread.results) == 30_000
    assert not thread.hurt


def test_what_is_shielded_is_done_to_its_end_and_the_call_is_broken_off_after_it() -> None:
    whole: list[bool] = []

    def work(interruption: Interruption) -> str:
        for _ in itertools.count():
            with interruption.shield():
                whole.append(False)
                sum(range(100))
                whole[-1] = True
        return "never"

    thread = Thread(work, 200)
    while not thread.ended(0.001):
        thread.current.interrupt()
    assert thread.results == ["broken off"] * 200
    assert not thread.hurt
    assert all(whole)


def test_a_shield_in_another_thread_and_an_interruption_of_nothing_do_nothing() -> None:
    interruption = Interruption()
    interruption.interrupt()
    with interruption.shield():
        pass
    assert interruption.run(lambda: "done", "broken off") == "done"
    interruption.interrupt()


def test_it_may_be_caught() -> None:
    def catches(_interruption: Interruption) -> str:
        try:
            while True:
                pass
        except Halted:
            return "caught"

    thread = Thread(catches, 1)
    while not thread.ended(0.005):
        thread.current.interrupt()
    assert thread.results in (["caught"], ["broken off"])
