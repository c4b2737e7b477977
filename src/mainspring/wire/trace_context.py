"""W3C trace context of a run: all attempts of a run are one trace, and each claim of it is a span.

Both ids are made of what server and worker know anyway, so nothing is stored or sent for them.
"""

from __future__ import annotations

from hashlib import sha256
from uuid import UUID


def traceparent(run_id: UUID, fence: int) -> str:
    """The trace has the id of the run. The span is the claim that this fence names."""
    span = sha256(f"{run_id}{fence}".encode()).digest()[:8]
    return f"00-{run_id.hex}-{span.hex()}-01"
