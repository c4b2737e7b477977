"""Every public name of the SDK says what it is or does, so that help() answers without another page."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Any

import mainspring
import mainspring.testing

_POINTS_ELSEWHERE = re.compile(
    r"(see|like|as|the same)\b(?!.*\.\s+\w)|`[^`]+` (in|for|from|with|of)\b|the (async|sync) version of", re.IGNORECASE
)


def public_members() -> Iterator[tuple[str, Any]]:
    """The public names, and the public methods and properties that our classes define."""
    for module in (mainspring, mainspring.testing):
        yield module.__name__, module
        for name in module.__all__:
            value = getattr(module, name)
            if not callable(value):
                continue
            yield f"{module.__name__}.{name}", value
            if isinstance(value, type):
                for owner in value.__mro__:
                    if owner.__module__.startswith("mainspring."):
                        yield from _members(f"{module.__name__}.{name}", owner)


def _members(of: str, owner: type) -> Iterator[tuple[str, Any]]:
    for name in list(vars(owner)):
        getattr(owner, name, None)  # methods of clients are made when they are looked up
        member = vars(owner)[name]
        documented = inspect.isfunction(member) or isinstance(member, property | classmethod | staticmethod)
        if documented and not name.startswith("_"):
            yield f"{of}.{name}", member


MEMBERS = dict(public_members())


def first_sentence(value: Any) -> str:
    doc = inspect.cleandoc(getattr(value, "__doc__", None) or "")
    return re.split(r"(?<=[.:])\s", " ".join(doc.split()), maxsplit=1)[0]


def test_there_is_something_to_look_at() -> None:
    assert {"mainspring.Task.submit", "mainspring.Client.why", "mainspring.testing.Box.advance"} <= MEMBERS.keys()


def test_a_public_name_says_in_its_first_sentence_what_it_is() -> None:
    sentences = {name: first_sentence(member) for name, member in MEMBERS.items()}
    short = {name: said for name, said in sentences.items() if len(said.split()) < 3 or not said.endswith((".", ":"))}
    assert short == {}, "is no sentence"
    assert {name: said for name, said in sentences.items() if _POINTS_ELSEWHERE.match(said)} == {}, "points elsewhere"
