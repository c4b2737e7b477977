-- stage: pre

-- Who changed what. An entry is written in the transaction of the change, and is never changed: retention drops whole
-- days. `xid` is that transaction. `before` and `after` are JSON texts: what a change replaced, and by what.
create table mainspring.audit_entries (
    entry_id   uuid not null,
    at         timestamptz not null default clock_timestamp(),
    tenant_id  int not null,
    xid        xid8 not null default pg_current_xact_id(),
    source     text not null,
    token_id   uuid,
    session_id uuid,
    actor      text not null,
    role       text,
    address    text,
    client     text,
    operation  text not null,
    kind       text not null,
    object_id  text not null,
    before     text,
    after      text
) partition by range (at);
create index audit_entries_by_time on mainspring.audit_entries (tenant_id, at desc, entry_id desc);
create index audit_entries_by_object on mainspring.audit_entries (tenant_id, kind, object_id, at desc, entry_id desc);
create index audit_entries_by_operation on mainspring.audit_entries (tenant_id, operation, at desc, entry_id desc);
create index audit_entries_by_actor on mainspring.audit_entries (tenant_id, actor, at desc, entry_id desc);
create index audit_entries_by_xid on mainspring.audit_entries (xid);

-- The chain of a tenant: `seq` counts from 1, `hash` covers the hash before it and that of the entry. Entries are linked
-- after their commit (upkeep/audit_linker.py).
create table mainspring.audit_links (
    tenant_id  int not null,
    seq        bigint not null,
    linked_at  timestamptz not null default clock_timestamp(),
    entry_id   uuid not null,
    entry_at   timestamptz not null,
    entry_hash bytea not null,
    hash       bytea not null,
    primary key (tenant_id, seq, linked_at)
) partition by range (linked_at);
create index audit_links_by_entry on mainspring.audit_links (entry_id);

-- The newest link of each tenant.
create table mainspring.audit_heads (
    tenant_id int primary key,
    seq       bigint not null,
    hash      bytea not null
);

-- How far entries are linked. Entries of transactions before `xid` are. Those from `xid` on are not older than `since`.
-- `next_since` replaces it once all transactions before `next_xid` have ended.
create table mainspring.audit_position (
    one        boolean primary key default true check (one),
    xid        xid8 not null,
    since      timestamptz not null,
    next_xid   xid8 not null,
    next_since timestamptz not null
);
insert into mainspring.audit_position (xid, since, next_xid, next_since)
values ('0', '2000-01-01+00', '0', '2000-01-01+00');

-- What retention has dropped: the days of entries, and the last link of each tenant in each day of links.
create table mainspring.audit_dropped_days (
    day        date primary key,
    dropped_at timestamptz not null default clock_timestamp()
);
create table mainspring.audit_anchors (
    tenant_id  int not null,
    seq        bigint not null,
    hash       bytea not null,
    dropped_at timestamptz not null default clock_timestamp(),
    primary key (tenant_id, seq)
);

create function mainspring.refuse_audit_change() returns trigger language plpgsql as $$
begin
    raise exception 'entries of the audit are not changed' using errcode = 'insufficient_privilege';
end $$;
create trigger kept before update or delete on mainspring.audit_entries
    for each row execute function mainspring.refuse_audit_change();
create trigger kept before update or delete on mainspring.audit_links
    for each row execute function mainspring.refuse_audit_change();
create trigger kept_whole before truncate on mainspring.audit_entries
    for each statement execute function mainspring.refuse_audit_change();
create trigger kept_whole before truncate on mainspring.audit_links
    for each statement execute function mainspring.refuse_audit_change();

-- Nobody but the owner changes entries, also where default privileges or a grant on all tables allow it. `tables`: the
-- tables and partitions.
create function mainspring.protect_audit(tables text[] default null) returns void
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
declare
    found record;
begin
    for found in
        select distinct c.relname, case when a.grantee = 0 then 'public' else quote_ident(pg_get_userbyid(a.grantee)) end as role
        from pg_class c
        cross join lateral aclexplode(c.relacl) a
        where c.relnamespace = 'mainspring'::regnamespace and c.relkind in ('r', 'p')
          and c.relname ~ '^audit_(entries|links|anchors|dropped_days)(_[0-9]{8})?$'
          and (tables is null or c.relname = any (tables))
          and a.grantee <> c.relowner and a.privilege_type in ('UPDATE', 'DELETE', 'TRUNCATE')
    loop
        execute format('revoke update, delete, truncate on mainspring.%I from %s', found.relname, found.role);
    end loop;
end $$;
revoke execute on function mainspring.protect_audit from public;
select mainspring.protect_audit();
