"""Failed sign-ins: counted by reason, and logged with the address that they came from. Secrets are not."""

from __future__ import annotations

from mainspring.kernel import metrics
from mainspring.kernel.logs import PacedLog, get_logger

log = get_logger("sign_in")

REASONS = (
    "invalid_link", "invalid_token", "worker_token", "wrong_token", "wrong_password", "too_many_attempts",
    "sign_in_over", "sign_in_refused", "sign_in_disabled", "mail_not_verified", "mail_taken",
)  # fmt: skip
_EVERY = 10.0  # seconds between two lines about one address
_MOST_ADDRESSES = 256


class FailedSignIns:
    """An attacker who guesses fails often, and so does a program with an old token: one line for each address every few
    seconds says how many there were."""

    def __init__(self) -> None:
        self._said: dict[str | None, PacedLog] = {}

    def note(self, reason: str, address: str | None) -> None:
        """A link, a token, a password, or the answer of a provider, that is not valid."""
        if reason not in REASONS:
            return
        metrics.sign_ins_failed.labels(reason=reason).inc()
        if address not in self._said and len(self._said) >= _MOST_ADDRESSES:
            self._said.clear()
        paced = self._said.setdefault(address, PacedLog(log, _EVERY))
        paced.warning("a sign-in failed", reason=reason, address=address)
