"""In the child: load apprise, send one message, say in our own words what became of it.

What apprise and its libraries log and print goes nowhere, because it may have a part of the address, all of which may
be secret.
"""

from __future__ import annotations

import logging
import os
import smtplib
import warnings
from importlib import import_module
from typing import Any

import msgspec

from mainspring.domain.notify.apprise_urls import NEVER, scheme_of
from mainspring.kinds.http.address_guard import AddressGuard
from mainspring.roles.apprise.confinement import Confinement, watched
from mainspring.roles.apprise.job import AppriseAnswer, AppriseJob

_OWN_PLUGINS = "apprise.plugins."
_BAD_STATUS = 400


def deliver(data: bytes) -> bytes:
    """An AppriseJob to an AppriseAnswer, as JSON."""
    _be_silent()
    job = msgspec.json.decode(data, type=AppriseJob)
    os.environ.update(job.certificates)
    readable = tuple(os.path.realpath(path) for path in job.certificates.values())
    confinement = Confinement(AddressGuard.from_text(job.allowed, option="--notify-allow"), readable)
    try:
        answer = _delivered(job, confinement)
    except Exception as error:  # noqa: BLE001 - of any plugin; its text may have a secret
        answer = AppriseAnswer(sent=False, error=f"apprise failed: {type(error).__name__}", refused=confinement.refused)
    return msgspec.json.encode(answer)


def _be_silent() -> None:
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for number in (1, 2):
        os.dup2(nowhere, number)


def _delivered(job: AppriseJob, confinement: Confinement) -> AppriseAnswer:
    scheme = scheme_of(job.url)
    if scheme is None or scheme not in job.schemes or scheme in NEVER:
        return AppriseAnswer(
            sent=False, final=True,
            error=f"the server does not allow {scheme or 'this scheme'}; allow it with --apprise-schemes",
        )  # fmt: skip
    confinement.begin()
    statuses: list[int] = []
    service = _service(job.url, scheme, statuses)
    if service is None:
        return AppriseAnswer(sent=False, error="apprise does not understand the address of the channel", final=True)
    apprise: Any = import_module("apprise")
    sent = service.notify(
        body=job.body, title=job.title, body_format=apprise.NotifyFormat.TEXT,
        notify_type=apprise.NotifyType.INFO if job.good else apprise.NotifyType.FAILURE,
    )  # fmt: skip
    if sent:
        return AppriseAnswer(sent=True, status=statuses[-1] if statuses else None)
    bad = [status for status in statuses if status >= _BAD_STATUS]
    said = f"the service answered {bad[-1]}" if bad else "no answer that says that it was taken"
    return AppriseAnswer(
        sent=False, error=said, status=bad[-1] if bad else None, refused=confinement.refused,
    )  # fmt: skip


def _service(url: str, scheme: str, statuses: list[int]) -> Any:
    """The service of an address, of a plugin that comes with apprise. Nothing of it is stored on disk."""
    apprise: Any = import_module("apprise")
    requests: Any = import_module("requests")
    watched(requests.Session, "send", lambda answer: statuses.append(int(answer.status_code)))
    watched(smtplib.SMTP, "getreply", lambda reply: statuses.append(int(reply[0])))
    asset = apprise.AppriseAsset(
        secure_logging=True, storage_mode="memory", plugin_paths=[], async_mode=False, default_service_retry=0,
    )  # fmt: skip
    asset.http_redirects = False
    service = apprise.Apprise.instantiate(url, asset=asset, suppress_exceptions=True)
    if service is None or not type(service).__module__.startswith(_OWN_PLUGINS):
        return None
    known = type(service).protocol, type(service).secure_protocol
    schemes = {one for each in known for one in ((each,) if isinstance(each, str) else each or ())}
    return service if scheme in schemes else None
