"""Settings of Python's garbage collector."""

from __future__ import annotations

import gc


def pause_garbage_collection() -> None:
    """Disable the collector until `freeze_garbage_collection` is called, because a start produces no garbage.

    A start of the server takes 0.06 s of CPU less, which is a tenth.
    """
    gc.disable()


def freeze_garbage_collection() -> None:
    """Exclude all present objects from collection and collect less often. Call it when a process is up.

    A no-op run takes 7.4 µs of the worker with this and 8.8 µs without.
    """
    gc.collect()
    gc.freeze()
    gc.enable()
    gc.set_threshold(50_000, 20, 50)
