-- The audit: entries, and the chain over them.

-- name: insert_entry
-- unguarded: append-only, in the transaction of the change.
insert into mainspring.audit_entries
    (entry_id, tenant_id, source, token_id, session_id, actor, role, address, client, operation, kind, object_id, before, after)
values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)

-- name: insert_lost_workers
-- unguarded: append-only, in the transaction that declares these workers lost.
insert into mainspring.audit_entries (entry_id, tenant_id, source, actor, operation, kind, object_id, after)
select e.entry_id, w.tenant_id, 'system', 'mainspring', 'workers.lost', 'worker', w.worker_id::text,
       json_build_object('name', w.name, 'state', 'LOST', 'silent_for', e.silent_for)::text
from unnest($1::uuid[], $2::uuid[], $3::float8[]) as e (entry_id, worker_id, silent_for)
join mainspring.workers w using (worker_id)

-- name: insert_opened_breakers
-- unguarded: append-only, in the transaction in which these breakers open.
insert into mainspring.audit_entries (entry_id, tenant_id, source, actor, operation, kind, object_id, before, after)
select e.entry_id, l.tenant_id, 'system', 'mainspring', 'breakers.open', 'breaker', l.limit_id::text,
       json_build_object('state', 'closed')::text,
       json_build_object('name', l.name, 'state', 'open', 'failures', k.failed)::text
from unnest($1::uuid[], $2::bigint[]) as e (entry_id, key_id)
join mainspring.limit_keys k using (key_id)
join mainspring.limits l using (limit_id)

-- name: digest_key
-- Of an installation. Only the owner and the servers can read it.
select sha256(convert_to(r.lock_number::text || '/audit digests', 'UTF8')) from mainspring.routines r

-- name: page
-- Newest first, before ($9, $10). $2: the name of who changed something; $11: the id of that token.
select {{audit_entry}}
from mainspring.audit_entries e
where e.tenant_id = any ($1::int[])
  and ($2::text is null or e.actor = $2) and ($11::uuid is null or e.token_id = $11)
  and ($3::text is null or e.operation = $3)
  and ($4::text is null or e.kind = $4)
  and ($5::text is null or e.object_id = $5)
  and ($6::timestamptz is null or e.at >= $6)
  and ($7::timestamptz is null or e.at < $7)
  and ($9::timestamptz is null or (e.at, e.entry_id) < ($9, $10::uuid))
order by e.at desc, e.entry_id desc
limit $8

-- name: turn
-- One process at a time links, until the end of the transaction.
select pg_try_advisory_xact_lock({{lock_key('audit')}})

-- name: position
-- How far entries are linked, and the transactions that are under way.
select p.xid::text::bigint as xid, p.since, p.next_xid::text::bigint as next_xid, p.next_since,
       pg_snapshot_xmin(s.now)::text::bigint as xmin, pg_snapshot_xmax(s.now)::text::bigint as xmax,
       (select clock_timestamp()) as now
from mainspring.audit_position p cross join (select pg_current_snapshot() as now) s

-- name: unlinked
-- Entries from transaction $1 on that began before $2, in the order of transactions. None of these is under way. All entries of
-- the last transaction are among them. The hour is for a clock that was set back.
select {{audit_entry}}, e.xid::text::bigint as xid
from mainspring.audit_entries e
where e.at >= $3::timestamptz - interval '1 hour' and e.xid >= $1::bigint::text::xid8 and e.xid < $2::bigint::text::xid8
  and not exists (select from mainspring.audit_links l where l.entry_id = e.entry_id)
order by e.xid
fetch first $4 rows with ties

-- name: unlinked_of_all
-- After the database was restored elsewhere, where transactions have smaller numbers: entries that have no link, without those
-- whose transaction may be under way.
select {{audit_entry}}, e.xid::text::bigint as xid
from mainspring.audit_entries e
where not (e.xid >= $1::bigint::text::xid8 and e.xid < $2::bigint::text::xid8)
  and not exists (select from mainspring.audit_links l where l.entry_id = e.entry_id)
order by e.at, e.entry_id

-- name: move
-- guard: the position as it was read.
update mainspring.audit_position
set xid = $2::bigint::text::xid8, since = $3, next_xid = $4::bigint::text::xid8, next_since = $5
where xid = $1::bigint::text::xid8
returning true

-- name: heads
select tenant_id, seq, hash from mainspring.audit_heads where tenant_id = any ($1::int[])

-- name: insert_links
-- unguarded: append-only; the heads below are guarded, in the same transaction.
insert into mainspring.audit_links (tenant_id, seq, entry_id, entry_at, entry_hash, hash)
select * from unnest($1::int[], $2::bigint[], $3::uuid[], $4::timestamptz[], $5::bytea[], $6::bytea[])

-- name: move_heads
-- guard: the number that the head had.
insert into mainspring.audit_heads as h (tenant_id, seq, hash)
select new.tenant_id, new.seq, new.hash
from unnest($1::int[], $2::bigint[], $3::bigint[], $4::bytea[]) as new (tenant_id, before, seq, hash)
on conflict (tenant_id) do update set seq = excluded.seq, hash = excluded.hash
where h.seq = (select o.before from unnest($1::int[], $2::bigint[]) as o (tenant_id, before) where o.tenant_id = h.tenant_id)
returning h.tenant_id

-- name: chain
-- The links of a tenant from $2 on, with their entries. An entry of a day that was dropped is null.
select l.seq, l.linked_at, l.entry_id, l.entry_at, l.entry_hash, l.hash, e.entry_id is not null as present,
       exists (select from mainspring.audit_dropped_days d
               where d.day = (l.entry_at at time zone 'UTC')::date) as dropped,
       e.source, e.token_id, e.session_id, e.actor, e.role, e.address, e.client, e.operation, e.kind, e.object_id,
       e.before, e.after
from mainspring.audit_links l
left join mainspring.audit_entries e on e.entry_id = l.entry_id and e.at = l.entry_at and e.tenant_id = l.tenant_id
where l.tenant_id = $1 and l.seq >= $2
order by l.seq
limit $3

-- name: anchor
-- The last link that was dropped.
select tenant_id, seq, hash from mainspring.audit_anchors where tenant_id = $1 order by seq desc limit 1

-- name: tail
-- Entries without a link: how many, at most $2, and since when.
select count(*)::int as count, min(t.at) as since
from (select e.at
      from mainspring.audit_entries e
      where e.tenant_id = $1 and e.at >= (select p.since - interval '1 hour' from mainspring.audit_position p)
        and not exists (select from mainspring.audit_links l where l.entry_id = e.entry_id)
      limit $2) t
