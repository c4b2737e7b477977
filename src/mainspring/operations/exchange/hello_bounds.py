"""How much a worker may say of itself: what it declares is kept in memory by every server, and read at every start."""

from __future__ import annotations

from collections.abc import Iterable

from mainspring.domain.errors import InvalidInput, PayloadTooLarge
from mainspring.domain.texts import shown
from mainspring.kernel.config import MAX_HELLO_BYTES
from mainspring.operations.submit.signature_registry import MOST_TASKS
from mainspring.wire.exchange import WorkerHello

MOST_QUEUES = 1000
MOST_LABELS = 100
LONGEST_TEXT = 1000


def check_hello(hello: WorkerHello) -> None:
    """Raise InvalidInput or PayloadTooLarge, which names the field."""
    _check_texts("hello.queues", hello.queues, MOST_QUEUES)
    _check_texts("hello.tasks", hello.tasks, MOST_TASKS)
    _check_texts("hello.labels", hello.labels, MOST_LABELS)
    _check_texts("hello.labels", hello.labels.values(), MOST_LABELS)
    _check_texts("hello.version", [hello.version], 1)
    _check_texts("hello.signatures", hello.signatures, MOST_TASKS)
    size = sum(len(memoryview(raw)) for raw in hello.signatures.values())
    if size > MAX_HELLO_BYTES:
        raise PayloadTooLarge(
            f"the signatures have {size} bytes together", field="hello.signatures",
            expected=f"at most {MAX_HELLO_BYTES} bytes", hint="declare less, or serve fewer tasks with one worker",
        )  # fmt: skip


def _check_texts(field: str, texts: Iterable[str], most: int) -> None:
    count = 0
    for text in texts:
        count += 1
        if len(text) > LONGEST_TEXT:
            raise InvalidInput(f"{shown(text)} is too long", field=field, expected=f"at most {LONGEST_TEXT} characters")
    if count > most:
        raise InvalidInput(f"{field} has {count} entries", field=field, expected=f"at most {most}")
