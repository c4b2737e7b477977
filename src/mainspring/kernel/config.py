"""Settings and the arithmetic of time. One place, so that the numbers that must agree stand next to each other."""

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
MAX_SHELL_PAYLOAD_BYTES = 120 * 1024  # it is a variable of the command, for which the kernel takes 128 KiB
MAX_RESULT_BYTES = 64 * 1024
MAX_BATCH = 10_000
MAX_BODY_BYTES = 64 * 1024 * 1024  # of a batch
MAX_JOB_BYTES = 1024 * 1024  # one job as JSON; also the body of all other requests of clients
MAX_EXCHANGE_BYTES = 8 * 1024 * 1024
MAX_HELLO_BYTES = 2 * 1024 * 1024
MAX_SHIPMENT_BYTES = 4 * 1024 * 1024
MAX_HEAD_BYTES = 64 * 1024
MAX_LOG_CHUNK = 1024 * 1024
DEFAULT_LOG_BYTES = 10 * 1024 * 1024  # of one attempt, unless limits.output says otherwise


@dataclass(frozen=True, slots=True)
class Timing:
    """How long things may be silent. beat < kill < rescue, or a run could live twice.

    A worker beats every `beat`; without an acknowledgement for `kill` its runs are killed; after `rescue` without a
    recorded beat the rescuer gives them to others. The difference between kill and rescue pays for the kill itself
    and for `beat_slack`, the age up to which a recorded beat is not recorded again. While servers say that only the
    database is away, ordinary runs live on until `cut_off_grace` after the last acknowledgement. A worker that is away
    from the server it prefers asks after about `homing` whether that one is back, then in pauses that double up to
    `homing_longest`.
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
