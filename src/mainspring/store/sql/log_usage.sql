-- How many bytes of output each tenant has stored on a day (UTC). Servers add to it once a second.

-- name: add_usage
-- unguarded: a sum. A server that dies has not counted its last second.
insert into mainspring.log_usage (day, tenant_id, bytes)
select ((select clock_timestamp()) at time zone 'UTC')::date, u.tenant_id, u.bytes
from unnest($1::int[], $2::bigint[]) as u (tenant_id, bytes)
order by u.tenant_id
on conflict (day, tenant_id) do update set bytes = log_usage.bytes + excluded.bytes

-- name: usage_today
-- At least one row, with the day.
select t.day, u.tenant_id, u.bytes
from (select ((select clock_timestamp()) at time zone 'UTC')::date as day) t
left join mainspring.log_usage u on u.day = t.day

-- name: prune_usage
-- unguarded: nobody adds to a day that ended a week ago.
delete from mainspring.log_usage where day < ((select clock_timestamp()) at time zone 'UTC')::date - 7
