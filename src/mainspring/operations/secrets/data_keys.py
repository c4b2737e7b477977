"""The data keys of tenants: created when a tenant stores its first secret, and encrypted with a master key."""

from __future__ import annotations

import secrets
from collections import OrderedDict

from mainspring.kernel.ids import TenantId
from mainspring.operations.secrets.master_keys import KEY_BYTES, MasterKeys, NoMasterKey
from mainspring.operations.secrets.sealing import Undecryptable, place_of_key, seal, unseal
from mainspring.store import secrets as store
from mainspring.store.pool import Connection
from mainspring.store.secrets import WrappedKey
from mainspring.wire.secrets import RewrappedKeys

_MOST_CACHED = 1000
_AT_ONCE = 100
_NO_TENANT = TenantId(-(2**31))


class DataKeys:
    """Decrypted data keys are kept in memory, by what is stored of them."""

    def __init__(self, master_keys: MasterKeys) -> None:
        self._master_keys = master_keys
        self._cached: OrderedDict[tuple[TenantId, bytes], bytes] = OrderedDict()

    async def ensure(self, connection: Connection, tenant: TenantId) -> bytes:
        """The data key of the tenant, which is created if it is missing. Raises NoMasterKey."""
        found = await store.data_key(connection, tenant)
        if found is None:
            key_id, master = await self._master_keys.current()
            wrapped = seal(master, secrets.token_bytes(KEY_BYTES), place_of_key(tenant))
            await store.insert_data_key(connection, tenant, key_id, wrapped)
            found = await store.data_key(connection, tenant)
            assert found is not None
        return await self.unwrap(tenant, found.key_id, found.wrapped)

    async def unwrap(self, tenant: TenantId, key_id: str, wrapped: bytes) -> bytes:
        """Raises NoMasterKey."""
        place = (tenant, wrapped)
        if (known := self._cached.get(place)) is not None:
            self._cached.move_to_end(place)
            return known
        master = await self._master_keys.get(key_id)
        try:
            key = unseal(master, wrapped, place_of_key(tenant))
        except Undecryptable:
            raise NoMasterKey(
                "the data key of the tenant cannot be decrypted: its row was changed", hint="restore the database"
            ) from None
        self._cached[place] = key
        while len(self._cached) > _MOST_CACHED:
            self._cached.popitem(last=False)
        return key

    async def rewrap(self, connection: Connection, only: TenantId | None) -> RewrappedKeys:
        """Encrypt data keys with the newest master key of this server. Values stay as they are."""
        await self._master_keys.reload()
        key_id, master = await self._master_keys.current()
        after, rewrapped, left = _NO_TENANT, 0, 0
        while found := await store.data_keys(connection, key_id, after, only, _AT_ONCE):
            for one in found:
                try:
                    key = await self.unwrap(one.tenant_id, one.key_id, one.wrapped)
                except NoMasterKey:
                    left += 1
                    continue
                rewrapped += await self._rewrap_one(connection, one, key, key_id, master)
            after = found[-1].tenant_id
        return RewrappedKeys(key_id, rewrapped, left)

    async def _rewrap_one(
        self, connection: Connection, one: WrappedKey, key: bytes, key_id: str, master: bytes
    ) -> bool:
        return await store.rewrap(connection, one, key_id, seal(master, key, place_of_key(one.tenant_id)))
