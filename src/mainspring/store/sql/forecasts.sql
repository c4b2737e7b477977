-- What fires when: the schedules of a tenant in groups, the next fires, and the forecasts of tenants with very many jobs.

-- name: some_jobs
-- How many jobs a tenant has, counted up to $2.
select count(*) from (select from mainspring.jobs where tenant_id = $1 limit $2) as counted

-- name: schedules_of_tenant
-- One-time jobs by their minute.
select {{schedule_groups}}
from mainspring.jobs j
where j.tenant_id = $1 and j.next_fire_at is not null and (not j.one_time or j.next_fire_at < $2)
group by 1, 2, 3

-- name: large_tenants
-- Tenants with at least $1 jobs.
select t.tenant_id
from mainspring.tenants t
where (select count(*) from (select from mainspring.jobs j where j.tenant_id = t.tenant_id limit $1) as counted) >= $1

-- name: blocks_of_jobs
select pg_relation_size('mainspring.jobs') / current_setting('block_size')::int

-- name: schedules_in_blocks
-- The same of the tenants $3, a range of blocks of the table at a time. By blocks, because the jobs of a shard lie in all
-- of them.
select {{schedule_groups}}
from mainspring.jobs j
where j.ctid >= format('(%s,0)', $1::bigint)::tid and j.ctid < format('(%s,0)', $2::bigint)::tid
  and j.tenant_id = any ($3::int[]) and j.next_fire_at is not null and (not j.one_time or j.next_fire_at < $4)
group by 1, 2, 3

-- name: next_of_tenant
-- The jobs of a tenant that fire before $2.
select {{next_fire_columns}}
from mainspring.jobs j
where j.tenant_id = $1 and j.next_fire_at < $2

-- name: next_of_shards
-- The first $3 jobs of each shard that fire before $2, also of other tenants.
select due.*
from unnest($1::smallint[]) as s (shard)
cross join lateral (
    select {{next_fire_columns}}
    from mainspring.jobs j
    where j.shard = s.shard and j.next_fire_at is not null and j.next_fire_at < $2
    order by j.next_fire_at
    limit $3
) as due

-- name: claim_pass
-- Returns the time if no other server has begun. A claim ends after $1 seconds.
-- guard: due_at.
insert into mainspring.forecast_pass as p (claimed_at, due_at)
select now, now + $1 * interval '1 second' from (select (select clock_timestamp()) as now) as clock
on conflict (only_row) do update
set claimed_at = excluded.claimed_at, due_at = excluded.due_at
where p.due_at <= excluded.claimed_at
returning claimed_at

-- name: finish_pass
-- The next pass may begin after $2 seconds.
-- guard: the claim is still ours.
update mainspring.forecast_pass
set due_at = (select clock_timestamp()) + $2 * interval '1 second'
where claimed_at = $1

-- name: put_forecast
-- guard: as_of only rises.
insert into mainspring.forecasts as f (tenant_id, as_of, forecast)
values ($1, $2, $3::json)
on conflict (tenant_id) do update
set as_of = excluded.as_of, forecast = excluded.forecast
where f.as_of < excluded.as_of

-- name: drop_forecasts
-- Of tenants that no longer have very many jobs.
-- guard: as_of; a later pass has written what is newer.
delete from mainspring.forecasts where as_of < $1 and tenant_id <> all ($2::int[])

-- name: get_forecast
select as_of, forecast::text as forecast_text, (select clock_timestamp()) as now from mainspring.forecasts where tenant_id = $1
