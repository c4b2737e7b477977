-- Stores the rows that mainspring.submit has put into `submissions`, when the transaction commits.

-- Runs at commit and turns all submissions of the transaction into runs and jobs. The trigger fires for each row, and
-- the first call does the work for all rows. Each call starts at its own row, because the rows before it are dead; with
-- a scan of all rows, 1,000 submissions took 94 ms to commit instead of 12. New lanes get their ids here, because
-- others wait for that lock until the commit. ready_at is set here, because workers do not search for runs that became
-- ready long ago, and the transaction may have been open for long.
create or replace function mainspring.store_submissions() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    moment constant timestamptz := (select clock_timestamp());
    created text;
    soonest timestamptz;
begin
    if not exists (select from mainspring.submissions where xact = new.xact and turn = new.turn) then
        return null; -- stored by an earlier call
    end if;
    if exists (select from mainspring.submissions s
               where s.xact = new.xact and s.turn >= new.turn and not exists (select from mainspring.lanes l
                   where l.tenant_id = s.tenant_id and l.queue = s.queue and l.priority = s.priority
                     and l.task = s.task and l.labels = s.labels)) then
        -- One transaction at a time, and the id is assigned after the lock; see sql/lanes.sql.
        perform pg_advisory_xact_lock({{lock_key('lanes')}});
        insert into mainspring.lanes (tenant_id, queue, priority, task, labels)
        select distinct s.tenant_id, s.queue, s.priority, s.task, s.labels
        from mainspring.submissions s
        where s.xact = new.xact and s.turn >= new.turn
          and not exists (select from mainspring.lanes l
                          where l.tenant_id = s.tenant_id and l.queue = s.queue and l.priority = s.priority
                            and l.task = s.task and l.labels = s.labels)
        order by 1, 2, 3, 4, 5
        on conflict do nothing;
    end if;

    with new_run as (
        select s.run_id, s.tenant_id, l.lane_id, s.max_attempts, false as exclusive, null::timestamptz as scheduled_for,
               s.job_id, {{generation_of(s)}} as generation, null::text as trigger, s.name, s.payload, s.spec, null::uuid as node_id, false as fired,
               null::uuid as created_by
        from mainspring.submissions s
        join mainspring.lanes l using (tenant_id, queue, priority, task, labels)
        where s.xact = new.xact and s.turn >= new.turn and s.kind = 'IMMEDIATE'
        order by s.turn
    ), inserted as (
        {{create_runs}}
        returning lane_id
    )
    select string_agg(b.lane_id || ':' || b.runs, ',') into created
    from (select lane_id, count(*) as runs from inserted group by lane_id limit 100) as b;

    -- Later generations of ids: the rows of the ended jobs are locked since mainspring.submit. A new row would keep others
    -- that wait for the lock from finding it, so it is replaced in its place.
    insert into mainspring.past_jobs (tenant_id, job_id, generation, job)
    select j.tenant_id, j.job_id, j.generation, row_to_json(j)
    from mainspring.submissions s
    join mainspring.jobs j using (tenant_id, job_id)
    where s.xact = new.xact and s.turn >= new.turn and j.generation < {{generation_of(s)}};
    delete from mainspring.jobs j
    using mainspring.submissions s
    where s.xact = new.xact and s.turn >= new.turn and s.kind = 'IMMEDIATE'
      and j.tenant_id = s.tenant_id and j.job_id = s.job_id and j.generation < {{generation_of(s)}};

    delete from mainspring.job_edges e
    using mainspring.submissions s
    where s.xact = new.xact and s.turn >= new.turn and e.tenant_id = s.tenant_id and e.child = s.job_id;

    with inserted as (
        insert into mainspring.jobs as j (tenant_id, job_id, lane_id, shard, status, overlap, max_attempts, one_time,
                                     id_generated, next_fire_at, created_at, updated_at, name, schedule, payload, spec,
                                     version, generation, edges)
        select s.tenant_id, w.job_id, l.lane_id, mainspring.shard_of(s.tenant_id, w.job_id), {{JOB_SCHEDULED}}, s.overlap,
               s.max_attempts, s.kind = 'FUTURE', s.job_id is null, w.fire_at, c.created_at, c.created_at, s.name,
               json_strip_nulls(json_build_object(
                   'kind', s.kind, 'every', s.every,
                   'at', to_char(s.fire_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'),
                   'anchor', case s.kind when 'INTERVAL'
                             then to_char(moment at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"') end)),
               s.payload, s.spec, w.generation, w.generation,
               case when s.job_id is not null and {{has_dependants(s)}} then {{EDGES_FOLLOWED}} end
        from mainspring.submissions s
        join mainspring.lanes l using (tenant_id, queue, priority, task, labels),
        lateral (select coalesce(s.job_id, s.run_id::text) as job_id, {{generation_of(s)}} as generation,
                        coalesce(s.fire_at, date_trunc('second', moment) + make_interval(secs => s.every::float8))
                            as fire_at) as w,
        lateral (select coalesce({{job_created(s.tenant_id, w.job_id, s.job_id is null)}}, moment) as created_at) as c
        where s.xact = new.xact and s.turn >= new.turn and s.kind <> 'IMMEDIATE'
        order by s.turn
        {{replace_ended}}
        returning next_fire_at
    )
    select min(next_fire_at) into soonest from inserted;

    delete from mainspring.submissions where xact = new.xact and turn >= new.turn;
    if created is not null then
        perform pg_notify('mainspring', 'sql ready ' || created);
    end if;
    if soonest < moment + interval '5 seconds' then
        perform pg_notify('mainspring', 'sql due -');
    end if;
    return null;
end $$;

-- Created once, because CREATE TRIGGER waits for every open transaction with a submission. Only the function changes
-- between versions.
do $$
begin
    if not exists (select from pg_trigger
                   where tgrelid = 'mainspring.submissions'::regclass and tgname = 'submissions_stored') then
        create constraint trigger submissions_stored after insert on mainspring.submissions
            deferrable initially deferred for each row execute function mainspring.store_submissions();
    end if;
end $$;
