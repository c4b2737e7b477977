"""Finds the address and the token of the server.

The address can be a list of several servers of one database, separated by commas. If one does not answer, the next one
is used. Arguments take precedence, then MAINSPRING_URL, MAINSPRING_TOKEN and MAINSPRING_TOKEN_FILE, then the data
folder of `mainspring up` (--data, MAINSPRING_DATA, or `.mainspring` in this folder or a parent), then the default
address.

A token is sent to another machine only through TLS, unless plain HTTP is allowed (--insecure-http,
MAINSPRING_INSECURE_HTTP).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from mainspring.domain.errors import InvalidInput
from mainspring.kernel.addresses import split_addresses
from mainspring.kernel.config import DEFAULT_DATA_FOLDER, DEFAULT_HOST, DEFAULT_PORT, TOKEN_FILE_NAME
from mainspring.kernel.trust import (
    CA_VARIABLE,
    INSECURE_HINT,
    insecure_http_allowed,
    is_loopback,
    travels_in_clear,
    trusted_context,
)

SERVER_FILE_NAME = "server.json"
DEFAULT_URL = f"http://{DEFAULT_HOST}:{DEFAULT_PORT}"


@dataclass(frozen=True, slots=True)
class Connection:
    """One address or several, separated by commas and without trailing slashes, and an optional token. `ca`: the file
    of the authorities that are trusted, if not those of the system."""

    url: str
    token: str | None = field(default=None, repr=False)
    ca: str | None = None

    @property
    def addresses(self) -> tuple[str, ...]:
        return split_addresses(self.url)

    @property
    def loopback(self) -> bool:
        """Whether all addresses are on this machine."""
        return all(is_loopback(urlsplit(address).hostname or "") for address in self.addresses)


class _ServerFile(msgspec.Struct):
    url: str
    ca: str | None = None


def find_connection(
    url: str | None = None,
    token: str | None = None,
    *,
    token_file: str | Path | None = None,
    data: str | Path | None = None,
    ca: str | Path | None = None,
    insecure_http: bool = False,
    environ: Mapping[str, str] | None = None,
    start: Path | None = None,
) -> Connection:
    """The connection from the arguments, the environment and the data folder, in this order."""
    env = os.environ if environ is None else environ
    folder = _data_folder(data or env.get("MAINSPRING_DATA") or None, start)
    file = _server_file(folder)
    written = None if file is None else file.url
    chosen = ",".join(map(_checked, _addresses(url or env.get("MAINSPRING_URL") or written or DEFAULT_URL)))
    known_ca = file.ca if file is not None and chosen == written else None
    trusted = _checked_ca(ca or env.get(CA_VARIABLE) or known_ca)
    if token is None and token_file is not None:
        token = _token_of(Path(token_file))
    if token is None:
        token = env.get("MAINSPRING_TOKEN") or None
    if token is None and env.get("MAINSPRING_TOKEN_FILE"):
        token = _token_of(Path(env["MAINSPRING_TOKEN_FILE"]))
    connection = Connection(chosen, token, trusted)
    # The token of the folder is the admin token of this machine. It is never sent to another machine.
    if token is None and folder is not None and (connection.loopback or chosen == written):
        return Connection(chosen, _folder_token(folder), trusted)
    # The address that `up` wrote is on this machine, whatever its name.
    if token is not None and chosen != written and not (insecure_http or insecure_http_allowed(env)):
        _refuse_clear_text(connection.addresses)
    return connection


def _data_folder(named: str | Path | None, start: Path | None) -> Path | None:
    if named is not None:
        return Path(named)
    here = Path.cwd() if start is None else start
    for parent in (here, *here.parents):
        folder = parent / DEFAULT_DATA_FOLDER
        if folder.is_dir() and _is_ours(folder):
            return folder
    return None


def _is_ours(folder: Path) -> bool:
    """Whether the folder belongs to this user. A folder that somebody else created, e.g. in /tmp, must not redirect
    jobs."""
    if not hasattr(os, "geteuid"):
        return True
    me = os.geteuid()
    return me == 0 or folder.stat().st_uid in (0, me)


def _refuse_clear_text(addresses: tuple[str, ...]) -> None:
    for address in addresses:
        if travels_in_clear(address):
            raise InvalidInput(
                f"{address} is plain HTTP to another machine: whoever is on the way can read the token",
                code="insecure_http",
                field="url",
                hint=INSECURE_HINT,
            )


def _checked_ca(ca: str | Path | None) -> str | None:
    """The path of the file, as processes in other folders use it."""
    if ca is None:
        return None
    path = str(Path(ca).absolute())
    try:
        trusted_context(path)
    except ValueError as error:
        raise InvalidInput(str(error), code="invalid_ca", field="ca", hint="name a file of certificates") from None
    return path


def _server_file(folder: Path | None) -> _ServerFile | None:
    if folder is None:
        return None
    try:
        return msgspec.json.decode((folder / SERVER_FILE_NAME).read_bytes(), type=_ServerFile)
    except (OSError, msgspec.MsgspecError):
        return None


def _folder_token(folder: Path) -> str | None:
    try:
        return (folder / TOKEN_FILE_NAME).read_text().strip() or None
    except OSError:
        return None


def _token_of(path: Path) -> str:
    try:
        token = path.read_text().strip()
    except OSError as error:
        raise InvalidInput(
            f"cannot read the token file {path}: {error.strerror}", code="no_token", field="token_file"
        ) from None
    if not token:
        raise InvalidInput(f"the token file {path} is empty", code="no_token", field="token_file")
    return token


def _addresses(urls: str) -> tuple[str, ...]:
    return split_addresses(urls) or (urls,)


def _checked(address: str) -> str:
    try:
        parts = urlsplit(address)
        fits = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:  # an incomplete IPv6 address, or a port that does not exist
        fits = False
    if not fits:
        raise InvalidInput(
            f"{address!r} is not a server's address",
            code="invalid_url",
            field="url",
            hint=f"write it like {DEFAULT_URL}",
        )
    return address
