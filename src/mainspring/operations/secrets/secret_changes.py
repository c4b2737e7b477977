"""Set, list and delete secrets. No operation returns a value."""

from __future__ import annotations

import hmac

import msgspec

from mainspring.domain.errors import InvalidInput
from mainspring.domain.intake.job_secrets import check_secret_name, check_secret_value, no_secret
from mainspring.domain.tags import changed_meanwhile
from mainspring.domain.texts import check_line
from mainspring.kernel.logs import get_logger
from mainspring.operations.access.audit_record import record
from mainspring.operations.access.caller import Caller
from mainspring.operations.paging.cursors import cursor_after_names, name_cursor
from mainspring.operations.paging.search import searching
from mainspring.operations.secrets.data_keys import DataKeys
from mainspring.operations.secrets.external import ExternalStores, decode_external
from mainspring.operations.secrets.master_keys import MasterKeys
from mainspring.operations.secrets.sealing import Undecryptable, place_of_secret, seal, unseal
from mainspring.store import secrets, tenants
from mainspring.store.pool import Connection, Store
from mainspring.store.secrets import SecretRow
from mainspring.wire.secrets import RewrappedKeys, SecretList, SecretRequest, SecretView

MOST_SECRETS = 10_000
_SHOWN_USERS = 100
_LONGEST_NAME = 1000

_encode = msgspec.json.Encoder().encode

log = get_logger("secrets")


class SecretStore:
    def __init__(self, store: Store, master_keys: MasterKeys, data_keys: DataKeys, external: ExternalStores) -> None:
        self._external = external
        self._store = store
        self._master_keys = master_keys
        self._data_keys = data_keys

    async def put(self, caller: Caller, name: str, request: SecretRequest) -> bool:
        """Store a secret, or a new version of it. Returns whether it was created. The new value is for attempts that a
        worker gets from now on."""
        await self.check(caller, name, request)
        async with self._store.change() as connection:
            return await self.put_in(caller, connection, name, request)

    async def check(self, caller: Caller, name: str, request: SecretRequest) -> None:
        """Raise InvalidInput, or NoMasterKey, as far as no transaction is needed."""
        check_secret_name(name)
        for field, words in (("queues", request.queues), ("tasks", request.tasks)):
            for word in words or ():
                check_line(word, field)
                if not 0 < len(word) <= _LONGEST_NAME:
                    raise InvalidInput(
                        f"a name in {field} is empty or too long",
                        field=field,
                        expected=f"1 to {_LONGEST_NAME} characters",
                    )
        if request.value is not None:
            check_secret_value(request.value)
        if request.external is not None and request.value is not None:
            raise InvalidInput("a secret has a value or a place outside, not both", field="external")
        await self._master_keys.current()  # first: without a key nothing is changed

    async def put_in(self, caller: Caller, connection: Connection, name: str, request: SecretRequest) -> bool:
        """Store it in the caller's transaction, after `check`. Returns whether it was created."""
        queues, tasks = scope_of(request)
        row = await secrets.lock(connection, caller.tenant, name)
        given = request.value is not None or request.external is not None
        if row is None and not given:
            raise InvalidInput("a new secret needs a value", field="value", expected="8 bytes or more")
        version = 1 if row is None else row.version + given
        sealed, external = None, None
        if request.external is not None:
            tenant = await tenants.get(connection, caller.tenant)
            self._external.check("" if tenant is None else tenant.name, request.external)
            await self._data_keys.ensure(connection, caller.tenant)
            sealed, external = b"", _encode(request.external).decode()
        if request.value is not None:
            key = await self._data_keys.ensure(connection, caller.tenant)
            sealed = seal(key, request.value.encode(), place_of_secret(caller.tenant, name, version))
        if row is None:
            assert sealed is not None
            if await secrets.count(connection, caller.tenant) >= MOST_SECRETS:
                raise InvalidInput(
                    f"the tenant has {MOST_SECRETS} secrets already", field="name", hint="delete one first"
                )
            done = await secrets.insert(
                connection, caller.tenant, name, version, sealed, queues, tasks, caller.name, external
            )
        else:
            done = await secrets.change(connection, row, version, sealed, queues, tasks, caller.name, external)
        if not done:
            raise changed_meanwhile(f"the secret {name!r}")
        kept = None if row is None else row.external_text
        after = {"version": version, "queues": queues, "tasks": tasks, "external": external if given else kept}
        await record(connection, caller, "secret", name, None if row is None else _recorded(row), after)
        log.info("secret set", tenant=caller.tenant, secret=name, version=version, by=caller.name)
        return row is None

    async def has_value(self, caller: Caller, connection: Connection, name: str, value: str) -> bool:
        """Whether the secret has this value. Raises NoMasterKey."""
        tenant = caller.tenant
        found = await secrets.sealed(connection, [(tenant, name)])
        for row in found:
            if not row.sealed:  # the value is in a store outside
                return False
            key = await self._data_keys.unwrap(tenant, row.key_id, row.wrapped)
            try:
                return hmac.compare_digest(
                    unseal(key, row.sealed, place_of_secret(tenant, name, row.version)), value.encode()
                )
            except Undecryptable:
                return False
        return False

    async def delete(self, caller: Caller, name: str) -> SecretView:
        """Delete a secret. Attempts that need it fail from now on. Returns it as it was."""
        check_secret_name(name)
        async with self._store.change() as connection:
            return _view(await delete_secret(connection, caller, name))

    async def secrets(self, caller: Caller, cursor: str | None, limit: int) -> SecretList:
        """The secrets of the tenant, by name."""
        after = name_cursor(cursor)
        async with searching(self._store, caller.tenant, "secrets") as connection:
            rows = await secrets.page(connection, caller.tenant, after, limit + 1)
        following = cursor_after_names(rows, limit)
        return SecretList([_view(row) for row in rows[:limit]], await self._master_keys.available(), following)

    async def secret(self, caller: Caller, name: str) -> SecretView:
        """One secret, and the jobs and workflows that name it."""
        check_secret_name(name)
        async with searching(self._store, caller.tenant, "secrets") as connection:
            row = await secrets.get(connection, caller.tenant, name)
            if row is None:
                raise no_secret(name)
            users = await secrets.users(connection, caller.tenant, name, _SHOWN_USERS + 1)
        view = _view(row)
        view.used_by, view.more_users = users[:_SHOWN_USERS], len(users) > _SHOWN_USERS
        return view

    async def rotate_key(self, caller: Caller) -> RewrappedKeys:
        """Encrypt the data key of the tenant with the newest master key; an instance administrator those of all."""
        only = None if caller.is_instance_admin else caller.tenant
        async with self._store.change() as connection:
            done = await self._data_keys.rewrap(connection, only)
            after = {"key": done.key, "rewrapped": done.rewrapped}
            await record(connection, caller, "master_key", done.key, None, after)
        log.info("master key in use", key=done.key, rewrapped=done.rewrapped, left=done.left, by=caller.name)
        return done


async def delete_secret(connection: Connection, caller: Caller, name: str) -> SecretRow:
    """Delete a secret in the caller's transaction. Returns it as it was."""
    row = await secrets.lock(connection, caller.tenant, name)
    if row is None:
        raise no_secret(name)
    if not await secrets.delete(connection, row):
        raise changed_meanwhile(f"the secret {name!r}")
    await record(connection, caller, "secret", name, _recorded(row), None)
    log.info("secret deleted", tenant=caller.tenant, secret=name, by=caller.name)
    return row


def scope_of(request: SecretRequest) -> tuple[list[str], list[str]]:
    """The queues and tasks whose jobs may name the secret."""
    return sorted(set(request.queues or ())), sorted(set(request.tasks or ()))


def _recorded(row: SecretRow) -> dict[str, object]:
    return {"version": row.version, "queues": row.queues, "tasks": row.tasks, "external": row.external_text}


def _view(row: SecretRow) -> SecretView:
    return SecretView(
        row.name, row.version, row.created_at, row.changed_at, row.changed_by, list(row.queues), list(row.tasks),
        None if row.external_text is None else decode_external(row.external_text),
    )  # fmt: skip
