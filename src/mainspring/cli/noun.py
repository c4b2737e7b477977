"""A noun of the command line with its verbs: `mainspring job pause`. Each module of `cli/nouns` is one noun.

A noun can have a default verb: `mainspring job ID` is `mainspring job show ID`. An id that is also a verb needs it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import NamedTuple, TypeVar

Function = TypeVar("Function", bound=Callable[..., None])


class NounVerb(NamedTuple):
    """A command. Its function has the options as parameters, and its docstring is the help."""

    name: str
    function: Callable[..., None]
    examples: tuple[str, ...]
    listed: bool = True

    def summary(self, room: int = 1000) -> str:
        return first_sentence(inspect.getdoc(self.function) or "", room)


def first_sentence(text: str, room: int) -> str:
    """The first sentence of a text, or its main clause if the sentence is longer than `room`."""
    sentence = " ".join(text.split()).partition(". ")[0].removesuffix(".")
    for mark in (":", ";"):
        if len(sentence) >= room:
            sentence = sentence.partition(mark)[0]
    return f"{sentence}."


class Noun:
    """help: one line. default: the verb that is meant if the first word is none of the verbs."""

    def __init__(
        self, name: str, help: str, default: str | None = None, verbs: dict[str, NounVerb] | None = None
    ) -> None:
        self.name, self.help, self.default = name, help, default
        self.verbs = {} if verbs is None else verbs

    def verb(self, name: str, *examples: str, listed: bool = True) -> Callable[[Function], Function]:
        """A decorator: adds the function as the verb `name`."""

        def add(function: Function) -> Function:
            self.verbs[name] = NounVerb(name, function, examples, listed)
            return function

        return add

    @property
    def listed(self) -> list[NounVerb]:
        return [verb for verb in self.verbs.values() if verb.listed]
