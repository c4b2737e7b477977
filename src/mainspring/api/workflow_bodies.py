"""Bodies with the steps of a workflow. A large one is decoded step by step, in slices, as if in one go."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from mainspring.api.array_scanner import ArrayScanner, ElementTooLarge
from mainspring.api.bodies import Body, decoded
from mainspring.api.large_batch import UNREADABLE, Undecoded, is_large
from mainspring.api.wording import in_words
from mainspring.domain.errors import InvalidInput, PayloadTooLarge
from mainspring.domain.workflows.graph import too_many_steps
from mainspring.kernel.config import MAX_BODY_BYTES
from mainspring.kernel.time_slices import TimeSlices
from mainspring.wire.workflows import (
    MAX_STEPS,
    StepIn,
    WorkflowPatch,
    WorkflowRequest,
)

W = TypeVar("W", WorkflowRequest, WorkflowPatch)

MAX_WORKFLOW_BYTES = MAX_BODY_BYTES // 2
_MAX_REST_BYTES = 1024 * 1024  # of all fields but the steps
_MAX_STEP_BYTES = MAX_WORKFLOW_BYTES  # a map may have a long list
_NOTHING = msgspec.Raw()

_decode_step = msgspec.json.Decoder(StepIn).decode
_decode_request = msgspec.json.Decoder(WorkflowRequest).decode
_decode_patch = msgspec.json.Decoder(WorkflowPatch).decode


def _parts_of(struct: type[msgspec.Struct]) -> Callable[[bytes], Any]:
    """A decoder that leaves the parts as they came."""
    parts = msgspec.defstruct(
        "_Parts", [(field, msgspec.Raw, _NOTHING) for field in struct.__struct_fields__], forbid_unknown_fields=True
    )
    return msgspec.json.Decoder(parts).decode


_decode_parts = {struct: _parts_of(struct) for struct in (WorkflowRequest, WorkflowPatch)}


async def whole(data: W | Undecoded, struct: type[W]) -> W:
    """The body, also if it is large."""
    if not isinstance(data, Undecoded):
        return data
    slices = TimeSlices()
    try:
        parts = _decode_parts[struct](data.body)
    except UNREADABLE as error:
        raise in_words(error, struct) from None
    await slices.pause()
    given = {name: raw for name in struct.__struct_fields__ if memoryview(raw := getattr(parts, name))}
    steps = given.pop("steps", None)
    rest = msgspec.json.encode(given)
    if len(rest) > _MAX_REST_BYTES:
        raise PayloadTooLarge(
            f"the fields beside the steps have {len(rest)} bytes",
            field="$",
            expected=f"at most {_MAX_REST_BYTES} bytes",
        )
    decode: Callable[[bytes], W] = msgspec.json.Decoder(struct).decode
    if steps is None:
        return decoded(decode, rest, struct)
    request = decoded(decode, msgspec.json.encode(given | {"steps": []}), struct)
    request.steps = await _steps(bytes(memoryview(steps)), slices)
    return request


async def _steps(raw: bytes, slices: TimeSlices) -> list[StepIn]:
    scanner = ArrayScanner(raw, 0, _MAX_STEP_BYTES, slices)
    elements: list[bytes] = []
    try:
        async for element in scanner.elements():
            elements.append(element)
            if len(elements) > MAX_STEPS:
                raise too_many_steps(len(elements))
    except ElementTooLarge as error:  # no step is longer than the body
        raise PayloadTooLarge("the step is too large", field=f"steps[{error.index}]") from None
    except UNREADABLE as error:
        raise InvalidInput(
            f"the steps are not an array: {error}", field="steps", expected="an array of steps"
        ) from None
    steps: list[StepIn] = []
    for index, element in enumerate(elements):
        try:
            steps.append(_decode_step(element))
        except UNREADABLE as error:
            refusal = in_words(error, StepIn)
            refusal.field = f"steps[{index}]" + ("" if refusal.field in (None, "$") else f".{refusal.field}")
            raise refusal from None
        if slices.over:
            await slices.pause()
    return steps


class WorkflowBody(Body[WorkflowRequest]):
    @staticmethod
    def decode(body: bytes) -> WorkflowRequest | Undecoded:
        return Undecoded(body) if is_large(body) else decoded(_decode_request, body, WorkflowRequest)


class WorkflowPatchBody(Body[WorkflowPatch]):
    @staticmethod
    def decode(body: bytes) -> WorkflowPatch | Undecoded:
        return Undecoded(body) if is_large(body) else decoded(_decode_patch, body, WorkflowPatch)
