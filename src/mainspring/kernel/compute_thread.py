"""One thread of the process for work that would hold up the event loop: several would only take the interpreter from
each other, and from the loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

_thread = ThreadPoolExecutor(1, thread_name_prefix="compute")


async def in_compute_thread(work: Callable[P, R], *arguments: P.args, **more: P.kwargs) -> R:
    """What `work` returns. It waits until the work of others is done."""
    return await asyncio.get_running_loop().run_in_executor(_thread, partial(work, *arguments, **more))
