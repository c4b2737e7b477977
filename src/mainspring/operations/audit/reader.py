"""Reads the audit: pages of entries, and the chain over them."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import UUID

import msgspec

from mainspring.domain.audit import StoredEntry
from mainspring.domain.errors import Forbidden, InvalidInput
from mainspring.domain.texts import check_line, meant, shown
from mainspring.kernel.ids import EVERY_TENANT, TenantId, parse_uuid
from mainspring.operations.access.caller import Caller
from mainspring.operations.paging.cursors import bad_cursor, decode_cursor, encode_cursor
from mainspring.operations.paging.search import searching
from mainspring.store import audit
from mainspring.store.audit import AuditFilter, ChainHead, ChainRow
from mainspring.store.pool import Store
from mainspring.wire.audit import AUDITED_KINDS, AuditChain, AuditEntry, AuditList, AuditRecord, ChainEnd, ChainLink

_MOST_UNLINKED = 1000


class AuditQuery(msgspec.Struct, frozen=True):
    """The parameters of `GET /v1/audit`. who: the name or the id of a token."""

    who: str | None = None
    operation: str | None = None
    kind: str | None = None
    id: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    cursor: str | None = None
    limit: int = 50


class AuditReader:
    def __init__(self, store: Store) -> None:
        self._store = store

    async def entries(self, caller: Caller, query: AuditQuery) -> AuditList:
        """Newest first. An instance administrator also sees what concerns all tenants."""
        for name in ("who", "operation", "kind", "id"):
            if (text := getattr(query, name)) is not None:
                check_line(text, name)
        if query.kind is not None and query.kind not in AUDITED_KINDS:
            raise InvalidInput(
                f"{shown(query.kind)} is not a kind of thing that has changes",
                code="invalid_parameter", field="kind", expected="one of " + ", ".join(AUDITED_KINDS),
                hint=meant(query.kind, AUDITED_KINDS, "") or None,
            )  # fmt: skip
        if query.id is not None and query.kind is None:
            raise InvalidInput(
                "an id needs a kind", code="invalid_parameter", field="kind", hint="such as kind=job or kind=queue"
            )
        token_id = None if query.who is None else parse_uuid(query.who)
        chosen = AuditFilter(
            tenants=[caller.tenant, EVERY_TENANT] if caller.is_instance_admin else [caller.tenant],
            actor=query.who if token_id is None else None,
            token_id=token_id,
            operation=query.operation,
            kind=query.kind,
            object_id=query.id,
            since=query.since,
            until=query.until,
            before=_place(query.cursor),
        )
        async with searching(self._store, caller.tenant, "audit") as connection:
            found = await audit.page(connection, chosen, query.limit + 1)
        page, following = found[: query.limit], None
        if len(found) > query.limit:
            following = encode_cursor(f"{page[-1].at.isoformat()} {page[-1].entry_id}")
        return AuditList([_view(entry) for entry in page], following)

    async def chain(self, caller: Caller, first: int, limit: int, *, all_tenants: bool = False) -> AuditChain:
        """The links from `first` on, or from the oldest one that is kept. `all_tenants`: the chain of what concerns all
        tenants."""
        if all_tenants and not caller.is_instance_admin:
            raise Forbidden(
                "only an admin of the tenant default can read what concerns all tenants",
                code="instance_admin_only", field="all_tenants", hint="leave all_tenants out for your own tenant",
            )  # fmt: skip
        tenant = EVERY_TENANT if all_tenants else caller.tenant
        async with searching(self._store, caller.tenant, "audit", isolation="repeatable_read") as connection:
            rows = await audit.chain(connection, tenant, first, limit + 1)
            heads = await audit.heads(connection, [tenant])
            anchor = await audit.anchor(connection, tenant)
            tail = await audit.tail(connection, tenant, _MOST_UNLINKED)
        return AuditChain(
            [_link(row, tenant) for row in rows[:limit]],
            head=_end(heads.get(tenant)),
            anchor=_end(anchor),
            unlinked=tail.count,
            unlinked_since=tail.since,
            next_seq=rows[limit].seq if len(rows) > limit else None,
        )


def _place(cursor: str | None) -> tuple[datetime, UUID] | None:
    """The entry that the page before ended with. None for the first page."""
    if cursor is None:
        return None
    text, _, entry_id = decode_cursor(cursor).partition(" ")
    found = parse_uuid(entry_id)
    try:
        moment = datetime.fromisoformat(text).astimezone(UTC)
    except (ValueError, OverflowError):
        raise bad_cursor() from None
    if found is None:
        raise bad_cursor()
    return moment, found


def _view(entry: StoredEntry) -> AuditEntry:
    return AuditEntry(
        entry_id=str(entry.entry_id),
        at=entry.at,
        by=entry.actor,
        source=entry.source,
        operation=entry.operation,
        kind=entry.kind,
        id=entry.object_id,
        before=None if entry.before is None else msgspec.json.decode(entry.before),
        after=None if entry.after is None else msgspec.json.decode(entry.after),
        token_id=_text(entry.token_id),
        session_id=_text(entry.session_id),
        role=entry.role,
        address=entry.address,
        client=entry.client,
        all_tenants=entry.tenant_id == EVERY_TENANT,
    )


def _link(row: ChainRow, tenant: TenantId) -> ChainLink:
    entry = None
    if row.present:
        names = set(AuditRecord.__struct_fields__) & set(ChainRow.__struct_fields__)
        shown = {name: getattr(row, name) for name in names}
        shown |= {name: _text(shown[name]) for name in ("entry_id", "token_id", "session_id")}
        entry = AuditRecord(at=row.entry_at, tenant_id=tenant, **shown)
    return ChainLink(
        row.seq, str(row.entry_id), row.entry_hash.hex(), row.hash.hex(), entry, dropped=row.dropped and not row.present
    )


def _end(head: ChainHead | None) -> ChainEnd | None:
    return None if head is None else ChainEnd(head.seq, head.hash.hex())


def _text(value: UUID | None) -> str | None:
    return None if value is None else str(value)
