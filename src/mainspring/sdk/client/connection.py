"""Finds the address and the token of the server.

The address can be a list of several servers of one database, separated by commas. If one does not answer, the next one
is used. Arguments take precedence, then MAINSPRING_URL, MAINSPRING_TOKEN and MAINSPRING_TOKEN_FILE, then the data
folder of `mainspring up` (--data, MAINSPRING_DATA, or `.mainspring` in this folder or a parent), then the default
address.

A data folder that is only found can have come with a repository. It is used if `up` or `server` of this user has made
it, and it may not be a link. Its address gets only the token that is beside it.

A token is sent to another machine only through TLS, unless plain HTTP is allowed (--insecure-http,
MAINSPRING_INSECURE_HTTP).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from mainspring.domain.errors import Forbidden, InvalidInput, not_ours
from mainspring.kernel.addresses import split_addresses
from mainspring.kernel.config import (
    DEFAULT_HOST,
    DEFAULT_PORT,
    LOG_FOLDER_NAME,
    POSTGRES_PASSWORD_FILE_NAME,
    TOKEN_FILE_NAME,
    WORKER_TOKEN_FILE_NAME,
)
from mainspring.kernel.data_folder import FOLDER_ID_FILE_NAME, found_folder, require_recorded
from mainspring.kernel.ownership import ForeignFile, read_own
from mainspring.kernel.trust import (
    CA_VARIABLE,
    INSECURE_HINT,
    insecure_http_allowed,
    is_loopback,
    travels_in_clear,
    trusted_context,
)

SERVER_FILE_NAME = "server.json"
_COVERED = "_MAINSPRING_COVERED"  # for the worker of `mainspring up`
_NAMES_IN_DATA = {TOKEN_FILE_NAME, LOG_FOLDER_NAME}  # of a server without `up`
DEFAULT_URL = f"http://{DEFAULT_HOST}:{DEFAULT_PORT}"


@dataclass(frozen=True, slots=True)
class ServerConnection:
    """One address or several, separated by commas and without trailing slashes, and an optional token. `ca`: the file
    of the authorities that are trusted, if not those of the system. `insecure_http`: plain HTTP to other machines is
    allowed."""

    url: str
    token: str | None = field(default=None, repr=False)
    ca: str | None = None
    insecure_http: bool = False

    @property
    def addresses(self) -> tuple[str, ...]:
        return split_addresses(self.url)

    @property
    def loopback(self) -> bool:
        """Whether all addresses are on this machine."""
        return all(is_loopback(urlsplit(address).hostname or "") for address in self.addresses)

    @property
    def direct(self) -> tuple[str, ...]:
        """The addresses that are never reached through a proxy of the environment: those on this machine, and plain
        HTTP that the user has not allowed, because a proxy would read the token."""
        return tuple(
            address
            for address in self.addresses
            if is_loopback(urlsplit(address).hostname or "") or (travels_in_clear(address) and not self.insecure_http)
        )


class _ServerFile(msgspec.Struct):
    url: str
    ca: str | None = None


@dataclass(frozen=True, slots=True)
class _Folder:
    """A data folder. `named`: by the user, who vouches for it."""

    path: Path
    named: bool

    def server_file(self) -> _ServerFile | None:
        try:
            content = self._read(SERVER_FILE_NAME)
            return None if content is None else msgspec.json.decode(content, type=_ServerFile)
        except msgspec.MsgspecError:
            return None

    def token(self) -> str | None:
        content = self._read(TOKEN_FILE_NAME)
        return None if content is None else content.decode("utf-8", "replace").strip() or None

    def _read(self, name: str) -> bytes | None:
        """A file of the folder, if it is there and we may read it. A folder that another user has put there must not
        redirect our jobs and our token."""
        try:
            return read_own(self.path, name, follow=self.named)
        except ForeignFile as error:
            raise not_ours(error) from None
        except OSError:
            return None


def _found(start: Path | None) -> _Folder | None:
    folder = found_folder(start)
    if folder is None:
        return None
    try:
        require_recorded(folder)
    except ForeignFile as error:
        raise not_ours(error) from None
    return _Folder(folder, named=False)


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
) -> ServerConnection:
    """The connection from the arguments, the environment and the data folder, in this order.

    The data folder is not read if both are known without it. Raises Forbidden if it belongs to another user, or was
    found and not made by us.
    """
    env = os.environ if environ is None else environ
    url = url or env.get("MAINSPRING_URL") or None
    if token is None and token_file is not None:
        token = read_token(Path(token_file))
    if token is None:
        token = env.get("MAINSPRING_TOKEN") or None
    if token is None and env.get("MAINSPRING_TOKEN_FILE"):
        token = read_token(Path(env["MAINSPRING_TOKEN_FILE"]))
    named = data or env.get("MAINSPRING_DATA") or None
    folder = None
    if url is None or token is None:
        folder = _Folder(Path(named), named=True) if named else _found(start)
    file = None if folder is None else folder.server_file()
    written = None if file is None else file.url
    if url is None and token is not None and folder is not None and file is not None and not folder.named:
        raise Forbidden(
            f"this token is not sent to {file.url}, which was only found in {folder.path / SERVER_FILE_NAME}",
            code="address_not_named",
            field="url",
            hint=f"name the server with --url or MAINSPRING_URL, or the folder: --data {folder.path}",
        )
    chosen = ",".join(map(_checked, _addresses(url or written or DEFAULT_URL)))
    known_ca = file.ca if file is not None and chosen == written else None
    trusted = checked_ca(ca or env.get(CA_VARIABLE) or known_ca)
    allowed = insecure_http or insecure_http_allowed(env)
    connection = ServerConnection(chosen, token, trusted, allowed)
    # The token of the folder is the admin token of this machine. It is never sent to another machine.
    if token is None and folder is not None and (connection.loopback or chosen == written):
        return replace(connection, token=folder.token())
    # The address that `up` wrote is on this machine, whatever its name.
    if token is not None and chosen != written and not allowed:
        _refuse_clear_text(connection.addresses)
    return connection


def private_paths(
    token_file: str | Path | None = None,
    data: str | Path | None = None,
    environ: Mapping[str, str] | None = None,
    start: Path | None = None,
) -> list[Path]:
    """The token file and the data folder that `find_connection` looks at with these arguments: they hold secrets."""
    env = os.environ if environ is None else environ
    named = (token_file, env.get("MAINSPRING_TOKEN_FILE"), data or env.get("MAINSPRING_DATA") or found_folder(start))
    return [Path(path).absolute() for path in named if path]


def covering(names: Iterable[str | None]) -> dict[str, str]:
    """The variable that tells a worker below which other files its commands must not see."""
    return {_COVERED: os.pathsep.join(str(Path(name).absolute()) for name in names if name)}


def covered_paths(environ: Mapping[str, str] | None = None) -> list[Path]:
    """What `covering` has named."""
    env = os.environ if environ is None else environ
    return [Path(name) for name in env.get(_COVERED, "").split(os.pathsep) if name]


def secrets_of(paths: Iterable[Path]) -> list[Path]:
    """What commands must not see of these `private_paths`, which may not exist yet: token files, and data folders as a
    whole, also the one that a token file is in. None of them is in another one."""
    places = {path.parent if _is_data_folder(path.parent) else path for path in (path.resolve() for path in paths)}
    return sorted(place for place in places if places.isdisjoint(place.parents))


def _is_data_folder(folder: Path) -> bool:
    """Whether it is one of `mainspring up` or `mainspring server`. A token alone may lie anywhere."""
    try:
        names = {entry.name for entry in folder.iterdir()}
    except OSError:
        return False
    if POSTGRES_PASSWORD_FILE_NAME in names:
        return True
    return TOKEN_FILE_NAME in names and (
        not names.isdisjoint((WORKER_TOKEN_FILE_NAME, SERVER_FILE_NAME, FOLDER_ID_FILE_NAME)) or names <= _NAMES_IN_DATA
    )


def _refuse_clear_text(addresses: tuple[str, ...]) -> None:
    for address in addresses:
        if travels_in_clear(address):
            raise InvalidInput(
                f"{address} is plain HTTP to another machine: whoever is on the way can read the token",
                code="insecure_http",
                field="url",
                hint=INSECURE_HINT,
            )


def checked_ca(ca: str | Path | None) -> str | None:
    """The path of the file, as processes in other folders use it. Raises InvalidInput if it cannot be used."""
    if ca is None:
        return None
    path = str(Path(ca).absolute())
    try:
        trusted_context(path)
    except ValueError as error:
        raise InvalidInput(str(error), code="invalid_ca", field="ca", hint="name a file of certificates") from None
    return path


def read_token(path: Path, field: str = "token_file") -> str:
    """The token in a file that the user has named."""
    try:
        token = path.read_text().strip()
    except OSError as error:
        raise InvalidInput(
            f"cannot read the token file {path}: {error.strerror}",
            code="no_token",
            field=field,
            hint="`mainspring up` writes admin-token into its data folder; `mainspring token add` makes another token",
        ) from None
    if not token:
        raise InvalidInput(f"the token file {path} is empty", code="no_token", field=field)
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
