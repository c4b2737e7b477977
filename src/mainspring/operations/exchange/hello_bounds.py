"""How much a worker may say of itself: what it declares is kept in memory by every server, and read at every start."""

from __future__ import annotations

from collections.abc import Iterable

from mainspring.domain.errors import Conflict, InvalidInput, PayloadTooLarge
from mainspring.domain.texts import shown
from mainspring.kernel.config import MAX_HELLO_BYTES
from mainspring.operations.signatures.signature_registry import MOST_TASKS
from mainspring.wire.exchange import WorkerHello

MOST_QUEUES = 1000
MOST_LABELS = 100
MOST_PAIRS = 200_000  # of a task and a queue
LONGEST_TEXT = 1000
MOST_TEXT = 256 * 1024  # bytes of queues, tasks and labels together
MOST_WORKERS = 10_000  # of a tenant, that are alive


def check_hello(hello: WorkerHello) -> None:
    """Raise InvalidInput or PayloadTooLarge, which names the field."""
    _check_texts("hello.queues", hello.queues, MOST_QUEUES)
    _check_texts("hello.tasks", hello.tasks, MOST_TASKS)
    _check_texts("hello.labels", hello.labels, MOST_LABELS)
    _check_texts("hello.labels", hello.labels.values(), MOST_LABELS)
    _check_texts("hello.version", [hello.version], 1)
    _check_texts("hello.signatures", hello.signatures, MOST_TASKS)
    _check_pairs(hello)
    _check_text(hello)
    size = sum(len(memoryview(raw)) for raw in hello.signatures.values())
    if size > MAX_HELLO_BYTES:
        raise PayloadTooLarge(
            f"the signatures have {size} bytes together", field="hello.signatures",
            expected=f"at most {MAX_HELLO_BYTES} bytes", hint="declare less, or serve fewer tasks with one worker",
        )  # fmt: skip


def too_many_workers() -> Conflict:
    return Conflict(
        f"the tenant has {MOST_WORKERS} live workers", code="too_many_workers",
        hint="stop workers that are not needed, or start fewer of them with more slots",
    )  # fmt: skip


def _check_pairs(hello: WorkerHello) -> None:
    """Who offers a task is shown for each of its queues."""
    pairs = len(hello.tasks) * len(hello.queues)
    if pairs > MOST_PAIRS:
        raise InvalidInput(
            f"{len(hello.tasks)} tasks on {len(hello.queues)} queues are {pairs} pairs", field="hello.queues",
            expected=f"at most {MOST_PAIRS} pairs", hint="serve fewer tasks or fewer queues with one worker",
        )  # fmt: skip


def _check_text(hello: WorkerHello) -> None:
    texts = (*hello.queues, *hello.tasks, *hello.labels, *hello.labels.values())
    size = sum(len(text.encode("utf-8", "replace")) for text in texts)
    if size > MOST_TEXT:
        raise PayloadTooLarge(
            f"queues, tasks and labels have {size} bytes together", field="hello",
            expected=f"at most {MOST_TEXT} bytes", hint="use shorter names, or serve fewer tasks with one worker",
        )  # fmt: skip


def _check_texts(field: str, texts: Iterable[str], most: int) -> None:
    count = 0
    for text in texts:
        count += 1
        if len(text) > LONGEST_TEXT:
            raise InvalidInput(f"{shown(text)} is too long", field=field, expected=f"at most {LONGEST_TEXT} characters")
    if count > most:
        raise InvalidInput(f"{field} has {count} entries", field=field, expected=f"at most {most}")
