-- stage: pre
-- What a worker was granted: for how many seconds of silence others leave its ordinary and its exclusive runs alone.
-- A worker that asks for nothing has 7.
-- heard_at, heard_by: the last heartbeat, once its table has been truncated, and the server that took it.
-- lost_because: why the worker is LOST. Code that does not know leases leaves it empty.
alter table mainspring.workers
    add column rescue_after           real not null default 7,
    add column exclusive_rescue_after real not null default 7,
    add column heard_at               timestamptz,
    add column heard_by               uuid,
    add column lost_because           text;

-- Leases are longer than the turn of a beat table. Before one is truncated, by whatever version, the last heartbeat of
-- each worker that the other table does not contain is copied to its row. A row that is locked by somebody else is not
-- waited for: the truncation fails, and the next sweep tries again.
create function mainspring.keep_heard() returns trigger
language plpgsql as $$
declare
    other text := case tg_table_name when 'worker_beats_0' then 'worker_beats_1' else 'worker_beats_0' end;
    left_out bigint;
begin
    execute format($query$
        with later as materialized (
            select distinct unnest(worker_ids) as worker_id from mainspring.%1$I
        ), forgotten as materialized (
            select w.worker_id, w.heard_at
            from mainspring.workers w
            where w.state in (1, 2) and not exists (select from later l where l.worker_id = w.worker_id)
        ), heard as materialized (
            select distinct on (b.worker_id) b.worker_id, b.at, b.server_id
            from (select at, server_id, unnest(worker_ids) as worker_id from mainspring.%2$I) as b
            join forgotten f on f.worker_id = b.worker_id and (f.heard_at is null or f.heard_at < b.at)
            order by b.worker_id, b.at desc
        ), free as materialized (
            select w.worker_id
            from mainspring.workers w
            join heard h on h.worker_id = w.worker_id
            order by w.worker_id
            for no key update of w skip locked
        ), kept as (
            update mainspring.workers w
            set heard_at = h.at, heard_by = h.server_id
            from heard h
            join free f on f.worker_id = h.worker_id
            where w.worker_id = h.worker_id
            returning w.worker_id
        )
        select (select count(*) from heard) - (select count(*) from kept)
    $query$, other, tg_table_name) into left_out;
    if left_out > 0 then
        raise lock_not_available using message = format('%s workers are locked: their last heartbeats cannot be kept', left_out);
    end if;
    return null;
end
$$;
create trigger keep_heard before truncate on mainspring.worker_beats_0
    for each statement execute function mainspring.keep_heard();
create trigger keep_heard before truncate on mainspring.worker_beats_1
    for each statement execute function mainspring.keep_heard();

-- Version 0.2.0 declares a worker LOST after 7 seconds. While such a process may run, or come back, a worker with a
-- longer lease stays alive until its exclusive lease has ended. Newer code knows better, and says why in lost_because.
create function mainspring.keep_leased() returns trigger
language plpgsql as $$
begin
    if greatest(
        old.registered_at, old.heard_at,
        (select max(b.at)
         from (select at, worker_ids from mainspring.worker_beats_0
               union all
               select at, worker_ids from mainspring.worker_beats_1) as b
         where old.worker_id = any (b.worker_ids))
    ) > (select clock_timestamp()) - old.exclusive_rescue_after * interval '1 second' then
        return null;
    end if;
    return new;
end
$$;
create trigger keep_leased before update of state on mainspring.workers
    for each row
    when (new.state = 3 and old.state in (1, 2) and new.lost_because is null and old.exclusive_rescue_after > 7)
    execute function mainspring.keep_leased();
