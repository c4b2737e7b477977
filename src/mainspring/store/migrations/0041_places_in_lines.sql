-- stage: pre
-- Strict lines: who is first among those who wait, whatever the order was when they were submitted.

-- By the time at which a run was submitted, or its job fired.
create index runs_in_order on mainspring.runs (held_key, (coalesce(fired_at, scheduled_for)), run_id)
    where held_key is not null and state = 4;

-- A run with several limits stands in one line and needs a slot of others as well.
create index runs_in_several_lines on mainspring.runs using gin (limit_keys) with (fastupdate = off)
    where held_key is not null and limit_keys[2] is not null;

-- The first run that needs a slot of this line, stands in another one, and was submitted before that time. Null if there is
-- none. Sessions of servers do not use bitmap scans, which this index needs.
create function mainspring.first_elsewhere(line bigint, before timestamptz) returns uuid
language plpgsql stable strict set enable_bitmapscan = on set enable_seqscan = off as $$
begin
    return (select r.run_id
            from mainspring.runs r
            where r.limit_keys @> array[line] and r.held_key is not null and r.limit_keys[2] is not null
              and r.held_key <> line and coalesce(r.fired_at, r.scheduled_for) < before
            order by coalesce(r.fired_at, r.scheduled_for), r.run_id
            limit 1);
end $$;
