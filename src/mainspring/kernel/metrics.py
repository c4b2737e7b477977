"""The counters of a process. `/metrics` shows them together with figures from the database.

Events are counted in batches (`inc(n)`), because a call takes half a microsecond, which is too much for every job.

The processes of one `mainspring server --processes N` have their counters in files that they share, so each can show
the sums. A process that replaces an ended one counts on.
"""

from __future__ import annotations

import os

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest, values
from prometheus_client.multiprocess import MultiProcessCollector

from mainspring.kernel.siblings import own_place

REGISTRY = CollectorRegistry()

if (_place := own_place()) is not None:
    _name = _place.name
    os.environ["PROMETHEUS_MULTIPROC_DIR"] = _place.folder
    values.ValueClass = values.MultiProcessValue(lambda: _name)  # type: ignore[no-untyped-call]

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0)

submitted = Counter("mainspring_jobs_submitted_total", "Jobs accepted by this process", registry=REGISTRY)
fired = Counter("mainspring_runs_fired_total", "Runs created from schedules by this node", registry=REGISTRY)
claimed = Counter("mainspring_runs_claimed_total", "Runs given to workers by this process", registry=REGISTRY)
outcomes = Counter(
    "mainspring_outcomes_total", "Outcomes taken from workers by this process", ["status"], registry=REGISTRY
)
retries = Counter("mainspring_retries_total", "Failed attempts that were followed by another", registry=REGISTRY)
dead = Counter("mainspring_runs_dead_total", "Runs that failed after their last attempt", registry=REGISTRY)
fenced = Counter(
    "mainspring_outcomes_fenced_total", "Outcomes rejected because the fence had changed", registry=REGISTRY
)
rescued = Counter("mainspring_runs_rescued_total", "Runs taken from lost workers by this process", registry=REGISTRY)
redelivered = Counter(
    "mainspring_runs_redelivered_total", "Claims delivered again after a lost response", registry=REGISTRY
)

fire_lag = Histogram(
    "mainspring_fire_lag_seconds", "From the due time to the fire", buckets=_SECONDS, registry=REGISTRY
)
start_latency = Histogram(
    "mainspring_start_latency_seconds", "From ready to claimed, for the oldest run of each claim", buckets=_SECONDS,
    registry=REGISTRY,
)  # fmt: skip
exchange_seconds = Histogram(
    "mainspring_exchange_seconds",
    "Time that an exchange spends working, without waiting",
    buckets=_SECONDS,
    registry=REGISTRY,
)
exchange_groups = Counter(
    "mainspring_exchange_groups_total", "Statements that wrote exchanges together", registry=REGISTRY
)
grouped_exchanges = Counter(
    "mainspring_grouped_exchanges_total", "Exchanges that these statements wrote", registry=REGISTRY
)
superseded = Counter(
    "mainspring_superseded_total",
    "Exchanges answered `superseded`: because of load, of held rows, or of a newer exchange",
    ["because_of"],
    registry=REGISTRY,
)
handed_off = Counter(
    "mainspring_runs_handed_off_total", "Runs that were created as claimed by a worker that waited", registry=REGISTRY
)
waiting = Gauge(
    "mainspring_workers_waiting",
    "Workers that wait in a long poll at this server",
    multiprocess_mode="livesum",
    registry=REGISTRY,
)
leases_held = Gauge(
    "mainspring_leases_held", "Shards that this node owns", multiprocess_mode="livesum", registry=REGISTRY
)
lease_epoch = Gauge(
    "mainspring_lease_epoch",
    "Highest epoch of the shards that this node owns",
    multiprocess_mode="livemax",
    registry=REGISTRY,
)
loop_lag = Gauge(
    "mainspring_loop_lag_seconds",
    "How late the event loop is, smoothed",
    multiprocess_mode="livemax",
    registry=REGISTRY,
)
EVENTS = ("fire_missed", "worker_lost", "breaker_opened", "queue_paused", "queue_resumed", "backfill_ended")
events = Counter(
    "mainspring_events_total", f"What happened besides runs: {', '.join(EVENTS)}", ["event"], registry=REGISTRY
)
for _event in EVENTS:  # a counter that begins with 1 is nothing new to Prometheus
    events.labels(_event)
loop_stalls = Counter(
    "mainspring_loop_stalls_total", "Times that the event loop stood still for over 250 ms", registry=REGISTRY
)
loop_stall_seconds = Histogram(
    "mainspring_loop_stall_seconds", "How long it stood still", buckets=(0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0),
    registry=REGISTRY,
)  # fmt: skip
streams = Gauge(
    "mainspring_streams", "Event streams that are open at this server", multiprocess_mode="livesum", registry=REGISTRY
)
streams_ended = Counter(
    "mainspring_streams_ended_total",
    "Event streams that this server has ended: signed_out, server_stops, full, or behind (the client did not read)",
    ["why"],
    registry=REGISTRY,
)
stream_events = Counter("mainspring_stream_events_total", "Events sent to event streams", registry=REGISTRY)
sign_ins_failed = Counter(
    "mainspring_sign_ins_failed_total",
    "Links, tokens and passwords that were refused: invalid_link, invalid_token, worker_token, wrong_token (typed "
    "again), wrong_password, too_many_attempts; of providers sign_in_over, sign_in_refused, sign_in_disabled, "
    "mail_not_verified, mail_taken",
    ["reason"],
    registry=REGISTRY,
)
refused = Counter("mainspring_requests_refused_total", "Requests refused because of load (429)", registry=REGISTRY)
connections = Gauge(
    "mainspring_connections", "Open connections of clients and workers", multiprocess_mode="livesum", registry=REGISTRY
)
connections_cut = Counter(
    "mainspring_connections_cut_total",
    "Connections closed because of a slow head, body or reader, or because there were too many (address, full)",
    ["why"],
    registry=REGISTRY,
)
requests_malformed = Counter(
    "mainspring_requests_malformed_total",
    "Requests refused before they were read: malformed, ambiguous, or with too many ahead of them",
    registry=REGISTRY,
)
death_notices = Counter("mainspring_death_notices_total", "Death notices of workers that were taken", registry=REGISTRY)
heard_after_notice = Counter(
    "mainspring_heard_after_notice_total",
    "Requests of workers refused because of their death notice",
    registry=REGISTRY,
)
wrong_incarnation = Counter(
    "mainspring_wrong_incarnation_total",
    "Requests refused because they do not prove that they come from the worker that they name",
    registry=REGISTRY,
)
judgement_held = Gauge(
    "mainspring_silent_workers_held",
    "Silent workers that are not declared lost yet, because servers or the database were not well",
    ["reason"],
    multiprocess_mode="livemax",
    registry=REGISTRY,
)
partly_rescued = Counter(
    "mainspring_workers_partly_rescued_total",
    "Silent workers whose ordinary runs were taken while their exclusive runs go on",
    registry=REGISTRY,
)


def exposition() -> bytes:
    """The counters in the text format of Prometheus: of this process, or of all processes of its server."""
    if _place is None:
        return generate_latest(REGISTRY)
    together = CollectorRegistry()
    MultiProcessCollector(together, _place.folder)  # type: ignore[no-untyped-call]
    return generate_latest(together)
