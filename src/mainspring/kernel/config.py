"""Settings and timeouts. They are in one place because they depend on each other."""

from __future__ import annotations

from dataclasses import dataclass

DEFAULT_HOST = "127.0.0.1"
DEFAULT_PORT = 8700
DEFAULT_DATA_FOLDER = ".mainspring"
TOKEN_FILE_NAME = "admin-token"
WORKER_TOKEN_FILE_NAME = "worker-token"
MASTER_KEY_FILE_NAME = "master-key"  # encrypts secrets
POSTGRES_PASSWORD_FILE_NAME = "postgres-password"
BACKUP_PASSWORD_FILE_NAME = "postgres-backup-password"  # of the role that can only replicate
POSTGRES_FOLDER_NAME = "postgres"  # in the data folder, with the socket
POSTGRES_ACCOUNT = "pgserver"  # runs the embedded PostgreSQL if Mainspring runs as root
LOG_FOLDER_NAME = "logs"
DEFAULT_QUEUE = "default"
SHARD_COUNT = 128

MAX_PAYLOAD_BYTES = 256 * 1024
DEFAULT_KEPT_PAYLOAD = 16 * 1024  # bytes: a payload up to this size stays with a run that has succeeded
MAX_SHELL_PAYLOAD_BYTES = 120 * 1024  # passed as an environment variable, which Linux limits to 128 KiB
MAX_RESULT_BYTES = 64 * 1024
MAX_BATCH = 10_000
MAX_BODY_BYTES = 64 * 1024 * 1024  # of a batch
MAX_JOB_BYTES = 1024 * 1024  # one job as JSON; also the body of all other requests of clients
LARGE_BYTES = 64 * 1024  # a larger body waits for its turn; a smaller one is decoded within 5 ms, whatever it contains
MAX_EXCHANGE_BYTES = 8 * 1024 * 1024
MAX_HELLO_BYTES = 2 * 1024 * 1024
MAX_SHIPMENT_BYTES = 4 * 1024 * 1024
MAX_HEAD_BYTES = 64 * 1024
MAX_CONNECTIONS = 20_000  # of clients and workers at one server
MAX_UNAUTHENTICATED = 256  # of them from one address, without a complete request or a valid token
MAX_LOG_CHUNK = 1024 * 1024
DEFAULT_LOG_BYTES = 10 * 1024 * 1024  # per attempt, unless the job sets limits.output


WATCHDOG_HEAD_START = 0.5  # seconds that the worker has to act on its deadline before the watchdog does
SHORTEST_LEASE = 7.0
LONGEST_LEASE = 300.0


def kill_for(rescue: float) -> float:
    """When a worker ends its own runs, if others take them at `rescue`: a fifth earlier, and at least 2 seconds. 7
    gives 5, 15 gives 12, 75 gives 60, 300 gives 240."""
    return rescue - max(2.0, 0.2 * rescue)


def rescue_for(kill: float) -> float:
    """The inverse of `kill_for`."""
    return max(kill + 2.0, kill / 0.8)


@dataclass(frozen=True, slots=True)
class LeaseTerms:
    """What a lease is worth, in seconds of silence: the worker ends its runs at `kill`, and others take them at
    `rescue`. Exclusive runs have terms of their own."""

    kill: float
    rescue: float
    exclusive_kill: float
    exclusive_rescue: float


@dataclass(frozen=True, slots=True)
class Timing:
    """Timeouts in seconds. beat < kill < rescue must hold, otherwise two attempts of a run could overlap.

    A worker sends a beat every `beat`. Without an acknowledgement for `kill` its ordinary runs are killed, and without
    one for `exclusive_kill` the exclusive ones. Without a recorded beat for `rescue` or `exclusive_rescue` the rescuer
    gives these runs to other workers. `rescue` is what a worker asks for unless it is told otherwise; a server grants
    it (`granted`). A worker without a grant uses `base_kill`, and it is rescued at `base_rescue`.

    The time between a kill and the earliest rescue covers, in this order: WATCHDOG_HEAD_START, which is what a worker
    that is stuck is late by; a quarter second in which runs that were asked to stop may end; the kill itself; and
    `beat_slack`, because a beat is not recorded again if the recorded one is younger than that. For 5 and 7 that is
    5 + 0.5 + 0.25 < 7 - 0.5.

    While servers report that only the database is unavailable, ordinary runs continue until `cut_off_grace` after the
    last acknowledgement, or until their kill if that is later. No server can take them in that time, unless it reaches
    a database that the others do not reach. Two attempts of an ordinary run may overlap then. Exclusive runs have no
    such grace. A worker that does not use its preferred server checks it after `preferred_server_check`, then at
    intervals that double up to `preferred_server_check_longest`.
    """

    beat: float = 2.0
    kill: float = 12.0
    rescue: float = 15.0
    exclusive_kill: float = 60.0
    exclusive_rescue: float = 75.0
    base_kill: float = 5.0
    base_rescue: float = 7.0
    beat_slack: float = 0.5
    cut_off_grace: float = 60.0
    rescue_sweep: float = 0.5
    lease_ttl: float = 3.0
    lease_margin: float = 0.5
    lease_renewal: float = 1.0
    look_ahead: float = 2.5
    due_scan: float = 1.0
    ready_poll: float = 1.0
    drain_grace: float = 30.0
    kill_grace: float = 5.0
    preferred_server_check: float = 30.0
    preferred_server_check_longest: float = 300.0

    def __post_init__(self) -> None:
        for prefix in ("", "exclusive_", "base_"):
            kill, rescue = getattr(self, f"{prefix}kill"), getattr(self, f"{prefix}rescue")
            if not self.beat < kill < rescue - self.beat_slack - WATCHDOG_HEAD_START:
                raise ValueError(
                    f"timing needs beat < {prefix}kill < {prefix}rescue - beat_slack - {WATCHDOG_HEAD_START:g}"
                )
        if not self.base_kill <= self.cut_off_grace:
            raise ValueError("timing needs base_kill <= cut_off_grace")
        if not self.lease_renewal + self.lease_margin < self.lease_ttl:
            raise ValueError("timing needs lease_renewal + lease_margin < lease_ttl")

    @property
    def base(self) -> LeaseTerms:
        """The lease of a worker that was granted none."""
        return LeaseTerms(self.base_kill, self.base_rescue, self.base_kill, self.base_rescue)

    def granted(self, wanted: float | None) -> LeaseTerms:
        """The lease that a server grants to a worker that asks for `wanted` seconds until the rescue of its ordinary
        runs. Exclusive runs have at least `exclusive_rescue`."""
        if wanted is None:
            return self.base
        shortest = min(SHORTEST_LEASE, self.rescue, self.base_rescue)
        rescue = min(max(wanted, shortest), max(LONGEST_LEASE, self.rescue))
        kill = self.kill if rescue == self.rescue else kill_for(rescue)
        if rescue <= self.exclusive_rescue:
            return LeaseTerms(kill, rescue, max(kill, self.exclusive_kill), self.exclusive_rescue)
        return LeaseTerms(kill, rescue, kill, rescue)


DEFAULT_TIMING = Timing()
