"""Who may speak for an incarnation of a worker.

The id of a worker is shown to others, so it proves nothing. An incarnation that was registered with a secret is bound
to that secret: every request carries it in a header (`SECRET_HEADER`). One without a secret, such as a worker of 0.2.0,
is bound to the token that registered it.
"""

from __future__ import annotations

import hmac
from uuid import UUID

import msgspec

from mainspring.domain.errors import Forbidden
from mainspring.kernel import metrics
from mainspring.kernel.logs import get_logger
from mainspring.operations.access.caller import Caller
from mainspring.wire.protocol import SECRET_HEADER

log = get_logger("exchange")


class Binding(msgspec.Struct, frozen=True):
    """What an incarnation is bound to, as its row says. The token counts if there is no secret."""

    secret_hash: bytes | None
    token_id: UUID | None

    @property
    def empty(self) -> bool:
        """The row was written by an older server, which does not store the token. A secret in it came with a hello, and
        the worker does not send it with other requests."""
        return self.token_id is None

    def admits(self, caller: Caller) -> bool:
        if self.secret_hash is None:
            return self.token_id == caller.credential
        return caller.secret_hash is not None and hmac.compare_digest(self.secret_hash, caller.secret_hash)

    def check(self, caller: Caller, worker_id: UUID) -> None:
        """Raise Forbidden, and count and log it, unless the caller may speak for this worker."""
        if not self.admits(caller):
            refuse(caller, worker_id, by_secret=self.secret_hash is not None)


def refuse(caller: Caller, worker_id: UUID, *, by_secret: bool) -> None:
    metrics.wrong_incarnation.inc()
    log.warning(
        "refused a request in the name of another worker",
        worker=str(worker_id), token=caller.name, token_id=str(caller.credential), address=caller.address,
    )  # fmt: skip
    if by_secret:
        raise Forbidden(
            "this request does not prove that it comes from this worker", code="wrong_incarnation",
            field=SECRET_HEADER, hint="send the secret with which the worker was registered",
        )  # fmt: skip
    raise Forbidden(
        "another token has registered this worker", code="wrong_incarnation", field="Authorization",
        hint="send hello under a new worker_id",
    )  # fmt: skip
