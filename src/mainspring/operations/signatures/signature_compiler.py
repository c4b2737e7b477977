"""Turns what workers declare about tasks into checks: each declaration once, in a thread, and within bounds.

A declaration of 256 KiB takes up to 0.2 s. No object in it has more than 256 parameters, because msgspec builds it
without a pause. A fleet says the same hello a thousand times after an outage, so results are remembered by the text
that they were made from.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from mainspring.domain.errors import InvalidInput, MainspringError, TooManyRequests
from mainspring.domain.intake.declaration import TaskDeclaration, options_in, read_declaration, read_options
from mainspring.domain.intake.signature import MOST_PARAMETERS, most_parameters
from mainspring.domain.texts import shown
from mainspring.kernel.ids import TenantId
from mainspring.kernel.logs import get_logger
from mainspring.kernel.tenant_turns import NoTurn, Share, TenantTurns
from mainspring.wire.tasks import OPTIONS_KEYWORD

log = get_logger("signatures")

LONGEST = 256 * 1024  # an environment among the options may take half of it
_AT_ONCE = 64 * 1024  # bytes that are compiled in one turn: 50 ms, unless one declaration is longer
_MOST_WAITING = 1000  # hellos of a tenant
_LONGEST_WAIT = 60.0
_MOST_REMEMBERED = 10_000
_MOST_REMEMBERED_BYTES = 16 * 1024 * 1024


class Compiled(NamedTuple):
    """`text` is the declaration as one text however it was spaced, its options in plain numbers and words, as SQL takes
    them. Both are None when it says nothing that we understand. `parameters`: how many there are, if these are too many
    to check payloads; then only the options of the task apply."""

    text: str | None
    declaration: TaskDeclaration | None
    parameters: int = 0


_NOTHING = Compiled(None, None)


class SignatureCompiler:
    def __init__(self) -> None:
        self._remembered: dict[tuple[str, bytes], Compiled] = {}
        self._bytes = 0
        # One thread at a time: they would only take the interpreter from each other.
        self._turns = TenantTurns(Share(1), Share(1), most_waiting=_MOST_WAITING, longest_wait=_LONGEST_WAIT)

    async def declared_texts(self, tenant: TenantId, declared: Mapping[str, msgspec.Raw]) -> dict[str, str]:
        """The text of each task's declaration; without those that say nothing that we understand. Raises InvalidInput
        if a task has too many parameters."""
        keys = [(task, bytes(raw)) for task, raw in declared.items()]
        try:
            compiled = await self.compile(tenant, keys)
        except NoTurn:
            raise TooManyRequests(
                "too many workers of this tenant declare new signatures", field="hello.signatures", hint="try again"
            ) from None
        for (task, _), one in zip(keys, compiled, strict=True):
            if one.parameters:
                raise _too_many_parameters(task, one.parameters)
        return {key[0]: one.text for key, one in zip(keys, compiled, strict=True) if one.text is not None}

    async def compile(self, tenant: TenantId, keys: Sequence[tuple[str, bytes]]) -> list[Compiled]:
        """What each (task, declaration) says. Tenants take turns, some declarations at a time. Raises NoTurn."""
        found = {key: self._remembered[key] for key in keys if key in self._remembered}
        for part in _in_parts([key for key in keys if key not in found]):
            async with self._turns.turn(tenant):
                made = await asyncio.to_thread(_compile_all, part)
            for key, compiled in made.items():
                self._remember(key, compiled)
            found |= made
        return [found[key] for key in keys]

    def _remember(self, key: tuple[str, bytes], compiled: Compiled) -> None:
        if len(self._remembered) >= _MOST_REMEMBERED or self._bytes >= _MOST_REMEMBERED_BYTES:
            self._remembered.clear()
            self._bytes = 0
        self._remembered[key] = compiled
        self._bytes += len(key[1])
        if compiled.text is not None:  # this is what other servers read
            self._remembered[key[0], compiled.text.encode()] = compiled
            self._bytes += len(compiled.text)


def _in_parts(keys: Sequence[tuple[str, bytes]]) -> Iterator[list[tuple[str, bytes]]]:
    part: list[tuple[str, bytes]] = []
    size = 0
    for key in keys:
        if part and size + len(key[1]) > _AT_ONCE:
            yield part
            part, size = [], 0
        part.append(key)
        size += len(key[1])
    if part:
        yield part


def declaration_in(task: str, text: str) -> TaskDeclaration | None:
    """What a stored declaration says."""
    return _compiled(task, text.encode()).declaration


def _compile_all(keys: Sequence[tuple[str, bytes]]) -> dict[tuple[str, bytes], Compiled]:
    return {key: _compiled(*key) for key in keys}


def _compiled(task: str, declared: bytes) -> Compiled:
    if len(declared) > LONGEST:
        log.warning("a signature is too long and ignored", task=task)
        return _NOTHING
    try:
        schema = msgspec.json.decode(declared)
        if (
            isinstance(schema, dict)
            and (options := _plain_options(task, schema.pop(OPTIONS_KEYWORD, None))) is not None
        ):
            schema[OPTIONS_KEYWORD] = options
        text = msgspec.json.encode(schema).decode()
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        log.warning("a signature cannot be read and is ignored", task=task, error=str(error))
        return _NOTHING
    if isinstance(schema, dict) and (found := most_parameters(schema)) > MOST_PARAMETERS:
        return Compiled(text, TaskDeclaration(None, options_in(schema)), found)
    declaration = read_declaration(task, schema)
    if declaration is None or "\\u0000" in text:
        return _NOTHING
    return Compiled(text, declaration)


def _too_many_parameters(task: str, found: int) -> InvalidInput:
    return InvalidInput(
        f"the task {shown(task)} has {found} parameters, or an object in its payload has so many",
        field="hello.signatures", expected=f"at most {MOST_PARAMETERS}",
        hint="pass some of them as one dict or list, whose entries are not declared",
    )  # fmt: skip


def _plain_options(task: str, given: object) -> dict[str, Any] | None:
    try:
        options = read_options(given)
    except MainspringError as error:
        log.warning("a task's options cannot be read and are ignored", task=task, field=error.field, error=error.detail)
        return None
    plain: dict[str, Any] | None = msgspec.to_builtins(options)
    return plain
