"""Which grants the role lacks. A server checks them when it starts, and names all that are missing at once.

A server needs no ownership and no right to create anything: a role of another team can own the schema and migrate it
(docs/operating.md).
"""

from __future__ import annotations

from mainspring.domain.errors import Forbidden
from mainspring.store.database import Database
from mainspring.store.pool import Connection

_MOST_STATEMENTS = 4
_READ_ONLY = ("schema_migrations", "routines")  # only migrations write to them
# Servers add rows to these, and change none. The owner's routines alone write to the last two.
_APPENDED = ("audit_entries", "audit_links")
_DERIVED = ("audit_anchors", "audit_dropped_days")
_TRUNCATED = ("worker_beats_0", "worker_beats_1")
_CALLED = ("add_partition", "drop_partition", "watch_changes", "mark_changes")

_SCHEMA = """
select quote_ident(current_user), has_schema_privilege(n.oid, 'usage'), has_schema_privilege(n.oid, 'create'),
       exists (select from pg_class c where c.relnamespace = n.oid and c.relname = 'schema_migrations')
from pg_namespace n where n.nspname = 'mainspring'
"""
_MISSING = """
with needed as (
    select c.oid, 'on ' || c.oid::regclass as what, privilege
    from pg_class c
    cross join unnest(array['select', 'insert', 'update', 'delete', 'truncate']) as privilege
    where c.relnamespace = 'mainspring'::regnamespace and c.relkind in ('r', 'p') and not c.relispartition
      and not (c.relname = any ($1::text[]) and privilege <> 'select')
      and not (c.relname = any ($4::text[]) and privilege not in ('select', 'insert'))
      and (privilege <> 'truncate' or c.relname = any ($2::text[]))
      and not has_table_privilege(c.oid, privilege)
    union all
    select p.oid, 'on function ' || p.oid::regprocedure, 'execute'
    from pg_proc p
    where p.pronamespace = 'mainspring'::regnamespace and p.proname = any ($3::text[])
      and not has_function_privilege(p.oid, 'execute')
)
select 'grant ' || string_agg(privilege, ', ') || ' ' || what || ' to ' || quote_ident(current_user)
from needed group by oid, what order by what
"""
_OWNER = """
select pg_get_userbyid(c.relowner), pg_has_role(c.relowner, 'usage')
from pg_class c join pg_namespace n on n.oid = c.relnamespace
where n.nspname = 'mainspring' and c.relname = 'schema_migrations'
"""
_ALL = (
    "grant select, insert, update, delete on all tables in schema mainspring to {role}",
    "select mainspring.protect_audit()",
    "grant truncate on mainspring.worker_beats_0, mainspring.worker_beats_1 to {role}",
    "grant execute on function mainspring.add_partition, mainspring.drop_partition, mainspring.watch_changes, "
    "mainspring.mark_changes to {role}",
)


async def require_owner(connection: Connection, database: Database) -> None:
    """For `mainspring migrate`: raises Forbidden if another role has made the tables."""
    row = await connection.fetchrow(_OWNER)
    if row is not None and not row[1]:
        raise Forbidden(
            f"the tables in {database.address} belong to the role {row[0]!r}, which has to migrate them",
            code="not_the_owner",
            hint=f"run `mainspring migrate` with the URL of {row[0]}",
        )


async def require_grants(connection: Connection, database: Database) -> None:
    """Raises Forbidden with the GRANT statements that the owner of the schema has to run."""
    row = await connection.fetchrow(_SCHEMA)
    if row is None:
        return
    role, may_use, may_create, is_migrated = row
    if not is_migrated:  # this role is about to do it
        statements = [] if may_use and may_create else [f"grant usage, create on schema mainspring to {role}"]
    elif not may_use:
        statements = [f"grant usage on schema mainspring to {role}", *(each.format(role=role) for each in _ALL)]
    else:
        found = await connection.fetch(_MISSING, (*_READ_ONLY, *_DERIVED), _TRUNCATED, _CALLED, _APPENDED)
        statements = [row[0] for row in found]
        if len(statements) > _MOST_STATEMENTS:
            statements = [each.format(role=role) for each in _ALL]
    if statements:
        raise Forbidden(
            f"the role lacks rights in the schema mainspring of {database.address}",
            code="permission_denied",
            hint=f"as the owner of the schema and its tables: {'; '.join(statements)}",
        )
