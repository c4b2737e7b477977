"""What the routes call: the operations of this server, put together once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

from litestar import Request

from mainspring.api.readiness import ReadinessCheck
from mainspring.kernel.clock import Clock
from mainspring.kernel.ids import TenantId
from mainspring.operations.access import AccessDesk
from mainspring.operations.amend import Amender
from mainspring.operations.drain import Drainer
from mainspring.operations.exchange import Exchanger
from mainspring.operations.logs import LogKeeper
from mainspring.operations.reader import Reader
from mainspring.operations.replay import Replayer
from mainspring.operations.signatures import SignatureBook
from mainspring.operations.submit import Submitter
from mainspring.store.tokens import Principal


@dataclass(frozen=True, slots=True)
class Services:
    submitter: Submitter
    amender: Amender
    reader: Reader
    replayer: Replayer
    exchanger: Exchanger
    drainer: Drainer
    logs: LogKeeper
    signatures: SignatureBook
    access: AccessDesk
    clock: Clock
    readiness: ReadinessCheck


def services_of(request: Request[Any, Any, Any]) -> Services:
    return cast(Services, request.app.state.services)


def tenant_of(request: Request[Any, Any, Any]) -> TenantId:
    return cast(Principal, request.scope["principal"]).tenant  # type: ignore[typeddict-item]
