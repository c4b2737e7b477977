"""Sinks as clients see them."""

from __future__ import annotations

from typing import Any

import msgspec

from mainspring.store.sinks import SinkProgress, SinkRow
from mainspring.wire.sinks import SinkView

decode_settings = msgspec.json.Decoder(dict[str, Any]).decode
decode_labels = msgspec.json.Decoder(dict[str, str]).decode


def sink_view(row: SinkRow, progress: SinkProgress) -> SinkView:
    return SinkView(
        name=row.name, kind=row.kind, version=row.version, created_at=row.created_at, updated_at=row.updated_at,
        updated_by=row.updated_by, paused=row.paused, keep_s=float(row.keep_seconds), keep_bytes=row.keep_bytes,
        position=progress.position, waiting=progress.waiting, sent=progress.sent, dropped=progress.dropped,
        failures=progress.failures, secrets=row.secret_names, on=row.changes or [], queue=row.queue, task=row.task,
        job=row.job_id, labels={} if row.labels_text is None else decode_labels(row.labels_text),
        lag_s=None if progress.lag is None else round(max(0.0, progress.lag), 3), sent_at=progress.sent_at,
        dropped_at=progress.dropped_at, error=progress.error, error_at=progress.error_at,
        **decode_settings(row.settings_text),
    )  # fmt: skip
