"""Bodies with the steps of a workflow. A large one is not decoded here, but in a child process."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from mainspring.api.bodies import decoded
from mainspring.api.large_batch import Undecoded
from mainspring.kernel.config import LARGE_BYTES, MAX_BODY_BYTES
from mainspring.wire.workflows import WorkflowPatch, WorkflowRequest

W = TypeVar("W", WorkflowRequest, WorkflowPatch)

MAX_WORKFLOW_BYTES = MAX_BODY_BYTES // 2

_decode_request = msgspec.json.Decoder(WorkflowRequest).decode
_decode_patch = msgspec.json.Decoder(WorkflowPatch).decode


def undecoded(data: W | Undecoded) -> W | bytes:
    """The body as it came if it is large, and decoded if it is not."""
    return data.body if isinstance(data, Undecoded) else data


def decode_workflow(body: bytes) -> WorkflowRequest | Undecoded:
    return Undecoded(body) if len(body) > LARGE_BYTES else decoded(_decode_request, body, WorkflowRequest)


def decode_workflow_patch(body: bytes) -> WorkflowPatch | Undecoded:
    return Undecoded(body) if len(body) > LARGE_BYTES else decoded(_decode_patch, body, WorkflowPatch)
