-- Sinks: where changes of a tenant are sent. Triggers write the changes (routines/sinks.sql).

-- name: get_sink
select {{sink_columns}}
from mainspring.sinks s
where s.tenant_id = $1 and s.name = $2

-- name: list_sinks
-- By name, after $2.
select {{sink_columns}}
from mainspring.sinks s
where s.tenant_id = $1 and ($2::text is null or s.name > $2)
order by s.name
limit $3

-- name: lock_sink
select {{sink_columns}}
from mainspring.sinks s
where s.tenant_id = $1 and s.name = $2
for update

-- name: count_sinks
select count(*)::int from mainspring.sinks s where s.tenant_id = $1

-- name: insert_sink
-- unguarded: insert if absent.
insert into mainspring.sinks
    (tenant_id, name, kind, settings, changes, queue, task, job_id, labels, keep_seconds, keep_bytes, updated_by)
values ($1, $2, $3, $4::json, $5, $6, $7, $8, $9::jsonb, $10, $11, $12)
on conflict do nothing
returning sink_id

-- name: insert_sink_position
-- unguarded: the transaction has inserted the sink.
insert into mainspring.sink_positions (sink_id) values ($1)

-- name: change_sink
-- guard: version; the caller has locked the row.
update mainspring.sinks
set version = version + 1, kind = $4, settings = $5::json, changes = $6, queue = $7, task = $8, job_id = $9,
    labels = $10::jsonb, keep_seconds = $11, keep_bytes = $12, updated_at = (select clock_timestamp()), updated_by = $13
where sink_id = $1 and tenant_id = $2 and version = $3
returning version

-- name: pause_sink
-- guard: version; the caller has locked the row.
update mainspring.sinks
set version = version + 1, paused = $4, updated_at = (select clock_timestamp()), updated_by = $5
where sink_id = $1 and tenant_id = $2 and version = $3
returning version

-- name: try_sink_now
-- What has failed is tried again at once: somebody has changed or resumed the sink.
-- guard: the caller has locked the sink.
update mainspring.sink_positions set retry_at = null, failures = 0 where sink_id = $1
returning sink_id

-- name: delete_sink
-- Its secrets and its position go with it; its changes are deleted later (orphaned_changes).
-- guard: version; the caller has locked the row.
delete from mainspring.sinks where sink_id = $1 and tenant_id = $2 and version = $3
returning version

-- name: put_sink_secrets
-- guard: the caller has locked or inserted the sink.
insert into mainspring.sink_secrets (sink_id, secrets) values ($1, $2::json)
on conflict (sink_id) do update set secrets = excluded.secrets

-- name: sink_secrets
select k.secrets::text as secrets_text from mainspring.sink_secrets k where k.sink_id = $1

-- name: watch_changes
select mainspring.watch_changes($1)

-- name: sinks_at_all
-- Whether there are sinks, changes, or triggers that write them.
select exists (select from mainspring.sinks) as sinks,
       exists (select from mainspring.sinks) or exists (select from mainspring.sink_changes)
       or exists (select from pg_trigger t where t.tgname = 'note_new_runs' and t.tgrelid = 'mainspring.runs'::regclass)

-- name: mark_changes
select m.last, m.before from mainspring.mark_changes($1) as m

-- name: oldest_transaction
select pg_snapshot_xmin(pg_current_snapshot())::text::bigint

-- name: sink_progress
-- How far sinks are. waiting: up to 100,000.
select p.sink_id, p.position, p.sent, p.sent_at, p.dropped, p.dropped_at, p.failures, p.error, p.error_at,
       coalesce(w.waiting, 0) as waiting,
       extract(epoch from (select clock_timestamp()) - o.at)::float8 as lag
from mainspring.sink_positions p
left join lateral (select count(*)::int as waiting
                   from (select from mainspring.sink_changes c
                         where c.sink_id = p.sink_id and c.seq > p.position limit 100000) as c) as w on true
left join lateral (select c.at from mainspring.sink_changes c where c.sink_id = p.sink_id and c.seq > p.position
                   order by c.seq limit 1) as o on true
where p.sink_id = any ($1::bigint[])
order by p.sink_id

-- name: claim_sinks
-- Sinks with something to send that no other server holds, or that this one holds.
-- guard: holder and lease; another server that takes over gets the next epoch.
with due as materialized (
    select p.sink_id
    from mainspring.sink_positions p
    join mainspring.sinks s on s.sink_id = p.sink_id
    where not s.paused and (p.holder = $1 or p.leased_until < (select clock_timestamp()))
      and not p.sink_id = any ($3::bigint[])
      and (p.retry_at is null or p.retry_at <= (select clock_timestamp()))
      and exists (select from mainspring.sink_changes c where c.sink_id = p.sink_id and c.seq > p.position and c.seq <= $5)
    order by p.leased_until, p.sink_id
    limit $4
    for no key update of p skip locked
)
update mainspring.sink_positions p
set holder = $1, epoch = p.epoch + 1, leased_until = (select clock_timestamp()) + $2 * interval '1 second'
from due d
join mainspring.sinks s on s.sink_id = d.sink_id
join mainspring.tenants t on t.tenant_id = s.tenant_id
where p.sink_id = d.sink_id and (p.holder = $1 or p.leased_until < (select clock_timestamp()))
returning p.sink_id, s.tenant_id, t.name as tenant, s.name, s.kind, s.version, s.settings::text as settings_text, p.epoch,
          p.position

-- name: renew_sinks
-- This server still sends for these sinks.
-- guard: holder; a lease that was given back stays given back.
update mainspring.sink_positions p
set leased_until = (select clock_timestamp()) + $3 * interval '1 second'
where p.sink_id = any ($2::bigint[]) and p.holder = $1 and p.leased_until > '-infinity'

-- name: read_changes
-- What comes after $2, up to $3, which no open transaction can add to any more.
select c.seq, c.at, c.change, c.subject, c.job_id, c.data::text as data_text
from mainspring.sink_changes c
where c.sink_id = $1 and c.seq > $2 and c.seq <= $3
order by c.seq
limit $4

-- name: move_sink
-- The receiver has taken $5 changes, up to $4. Returns whether this server goes on: the sink is as it was.
-- guard: holder and epoch; the position only rises.
update mainspring.sink_positions p
set position = $4, sent = p.sent + $5, sent_at = (select clock_timestamp()), failures = 0, error = null, error_at = null,
    retry_at = null, leased_until = (select clock_timestamp()) + $6 * interval '1 second'
from mainspring.sinks s
where p.sink_id = $1 and p.holder = $2 and p.epoch = $3 and p.position < $4 and s.sink_id = p.sink_id
returning not s.paused and s.version = $7 as goes_on

-- name: sink_failed
-- guard: holder and epoch.
update mainspring.sink_positions p
set failures = p.failures + 1, error = $4, error_at = (select clock_timestamp()), leased_until = '-infinity',
    retry_at = (select clock_timestamp()) + least($6, $5 * 2 ^ least(p.failures, 10)) * interval '1 second'
where p.sink_id = $1 and p.holder = $2 and p.epoch = $3
returning p.failures

-- name: release_sink
-- guard: holder and epoch.
update mainspring.sink_positions p set leased_until = '-infinity' where p.sink_id = $1 and p.holder = $2 and p.epoch = $3
returning p.sink_id

-- name: lock_pruning
-- One server at a time removes changes.
select pg_try_advisory_xact_lock({{lock_key('sink_pruning')}})

-- name: sinks_to_prune
-- Of each sink the last change that has waited for too long, or that has too many bytes of newer ones after it.
select s.sink_id, s.tenant_id, s.name, p.position, greatest(old.seq, large.seq) as last
from mainspring.sinks s
join mainspring.sink_positions p on p.sink_id = s.sink_id
left join lateral (
    select max(c.seq) as seq from mainspring.sink_changes c
    where c.sink_id = s.sink_id and c.seq > p.position
      and c.at < (select clock_timestamp()) - s.keep_seconds * interval '1 second') as old on true
left join lateral (
    select max(b.seq) as seq
    from (select c.seq, sum(octet_length(c.data::text) + 100) over (order by c.seq desc) as after
          from mainspring.sink_changes c where c.sink_id = s.sink_id and c.seq > p.position) as b
    where b.after > s.keep_bytes) as large on true
order by s.sink_id

-- name: drop_changes
-- What waits up to $3 is dropped, and counted. The position moves with it.
-- guard: the position, which only rises; the advisory lock of pruning.
with gone as (
    delete from mainspring.sink_changes where sink_id = $1 and seq > $2 and seq <= $3 returning seq
), counted as (select count(*) as number from gone)
update mainspring.sink_positions p
set position = $3, dropped = p.dropped + c.number, dropped_at = (select clock_timestamp())
from counted c
where p.sink_id = $1 and p.position = $2
returning c.number

-- name: delete_sent_changes
-- guard: the position of the sink: what lies before it was taken or dropped.
delete from mainspring.sink_changes c
using mainspring.sink_positions p
where c.sink_id = p.sink_id and c.seq <= p.position
  and c.ctid = any (array(select o.ctid
                          from mainspring.sink_positions q
                          cross join lateral (select d.ctid from mainspring.sink_changes d
                                              where d.sink_id = q.sink_id and d.seq <= q.position
                                              order by d.seq limit $1) as o))
returning 1

-- name: delete_orphaned_changes
-- guard: their sink is gone, and ids of sinks are not used again.
with recursive known as (
    (select c.sink_id from mainspring.sink_changes c order by c.sink_id limit 1)
    union all
    select (select c.sink_id from mainspring.sink_changes c where c.sink_id > k.sink_id order by c.sink_id limit 1)
    from known k where k.sink_id is not null
)
delete from mainspring.sink_changes c
where c.ctid = any (array(select d.ctid from known k
                          cross join lateral (select o.ctid from mainspring.sink_changes o
                                              where o.sink_id = k.sink_id limit $1) as d
                          where not exists (select from mainspring.sinks s where s.sink_id = k.sink_id) limit $1))
returning 1

-- name: troubled_sinks
-- Sinks of a tenant that have failed for more than a minute, or have dropped changes in the last day.
select s.name, p.failures, p.error, p.dropped, p.dropped_at,
       p.dropped_at > (select clock_timestamp()) - interval '1 day' as dropped_lately
from mainspring.sinks s
join mainspring.sink_positions p on p.sink_id = s.sink_id
where s.tenant_id = $1 and not s.paused
  and (p.failures > 2 or p.dropped_at > (select clock_timestamp()) - interval '1 day')
order by s.name
