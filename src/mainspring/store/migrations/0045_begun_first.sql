-- stage: pre
-- In a strict line a run that has begun comes before runs that have not, also before those that were submitted earlier:
-- two submissions may commit in another order than their times say.
create index runs_begun_in_order on mainspring.runs (held_key, (coalesce(fired_at, scheduled_for)), run_id)
    where held_key is not null and state = 4 and attempt > 0;

-- The first run that needs a slot of this line, stands in another one, and comes before a run that has not begun (`fresh`)
-- or has, and was submitted at that time. Null if there is none.
create function mainspring.first_elsewhere(line bigint, fresh boolean, before timestamptz) returns uuid
language plpgsql stable strict set enable_bitmapscan = on set enable_seqscan = off as $$
begin
    return (select r.run_id
            from mainspring.runs r
            where r.limit_keys @> array[line] and r.held_key is not null and r.limit_keys[2] is not null
              and r.held_key <> line and (r.attempt = 0, coalesce(r.fired_at, r.scheduled_for)) < (fresh, before)
            order by r.attempt = 0, coalesce(r.fired_at, r.scheduled_for), r.run_id
            limit 1);
end $$;
