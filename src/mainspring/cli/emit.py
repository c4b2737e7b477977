"""`mainspring emit`: the same as `mainspring event emit`."""

from __future__ import annotations

from mainspring.cli.nouns.event import EMIT_EXAMPLES
from mainspring.cli.nouns.event import emit as command

__all__ = ["EXAMPLES", "command"]

EXAMPLES = tuple(example.replace("event emit", "emit") for example in EMIT_EXAMPLES)
