"""Who owns a job: the job files that say what it is."""

from __future__ import annotations

from datetime import datetime

import msgspec


class FileOwner(msgspec.Struct):
    """The files that own a job. source: the file and the line. changed_since: it was changed after the files were
    applied last."""

    owner: str
    source: str | None
    applied_at: datetime
    applied_by: str
    changed_since: bool
