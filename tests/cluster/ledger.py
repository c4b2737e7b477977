"""What is kept of proofs: the newest clean history with its verdict, and the numbers of all."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import msgspec

FOLDER = Path(__file__).with_name("proof_history")
HISTORY, VERDICT, LEDGER = FOLDER / "newest.json.xz", FOLDER / "verdict.json", FOLDER / "ledger.json"


class Verdict(msgspec.Struct, kw_only=True):
    """Of one proof. `fires`: runs of schedules, and recorded misses. `slowness`: how many times as long
    everything took as on a quiet machine, as measured beside the cluster."""

    at: datetime
    version: str
    seed: int
    minutes: float
    faults: int
    in_pairs: int
    kinds: int
    calls: int
    runs: int
    fires: int
    events: int
    slowness: float = 1.0
    violations: list[str]


def proofs() -> list[Verdict]:
    """All proofs whose numbers are kept, the oldest first."""
    return msgspec.json.decode(LEDGER.read_bytes(), type=list[Verdict]) if LEDGER.exists() else []
