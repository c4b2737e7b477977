"""Settings and timeouts. They are in one place because they depend on each other."""

from __future__ import annotations

from dataclasses import dataclass

DEFAULT_HOST = "127.0.0.1"
DEFAULT_PORT = 8700
DEFAULT_DATA_FOLDER = ".mainspring"
TOKEN_FILE_NAME = "admin-token"
LOG_FOLDER_NAME = "logs"
DEFAULT_QUEUE = "default"
SHARD_COUNT = 128

MAX_PAYLOAD_BYTES = 256 * 1024
MAX_SHELL_PAYLOAD_BYTES = 120 * 1024  # passed as an environment variable, which Linux limits to 128 KiB
MAX_RESULT_BYTES = 64 * 1024
MAX_BATCH = 10_000
MAX_BODY_BYTES = 64 * 1024 * 1024  # of a batch
MAX_JOB_BYTES = 1024 * 1024  # one job as JSON; also the body of all other requests of clients
MAX_EXCHANGE_BYTES = 8 * 1024 * 1024
MAX_HELLO_BYTES = 2 * 1024 * 1024
MAX_SHIPMENT_BYTES = 4 * 1024 * 1024
MAX_HEAD_BYTES = 64 * 1024
MAX_LOG_CHUNK = 1024 * 1024
DEFAULT_LOG_BYTES = 10 * 1024 * 1024  # per attempt, unless the job sets limits.output


@dataclass(frozen=True, slots=True)
class Timing:
    """Timeouts in seconds. beat < kill < rescue must hold, otherwise two attempts of a run could overlap.

    A worker sends a beat every `beat`. Without an acknowledgement for `kill` its runs are killed. Without a recorded
    beat for `rescue` the rescuer gives its runs to other workers. The time between kill and rescue covers the kill
    itself and `beat_slack`: a beat is not recorded again if the recorded one is younger than that. While servers report
    that only the database is unavailable, ordinary runs continue until `cut_off_grace` after the last acknowledgement.
    A worker that does not use its preferred server checks it after `preferred_server_check`, then at intervals that
    double up to `preferred_server_check_longest`.
    """

    beat: float = 2.0
    kill: float = 5.0
    rescue: float = 7.0
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
        if not self.beat < self.kill < self.rescue - self.beat_slack:
            raise ValueError("timing needs beat < kill < rescue - beat_slack")
        if not self.kill <= self.cut_off_grace:
            raise ValueError("timing needs kill <= cut_off_grace")
        if not self.lease_renewal + self.lease_margin < self.lease_ttl:
            raise ValueError("timing needs lease_renewal + lease_margin < lease_ttl")


DEFAULT_TIMING = Timing()
