-- Changes for sinks. Triggers write them in the transaction of the change, whatever has made it. The triggers exist only
-- while there is a sink, so an installation without sinks pays nothing. The guide is docs/sinks.md.

create or replace function mainspring.note_new_runs() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp set timezone = 'UTC' as $$
begin
    with found as (
        select {{kind_of_run(r)}} || e.change as change, r.tenant_id, l.queue, l.task, r.run_id::text as subject,
               coalesce(r.job_id, r.run_id::text) as job_id, r.spec -> 'labels' as labels,
               json_build_object({{data_of_run(r)}}, 'ready_at', r.ready_at) as data, e.number
        from new_runs r
        join mainspring.lanes l on l.lane_id = r.lane_id
        cross join lateral (values ('created', 1), ('started', 2)) as e(change, number)
        where e.number = 1 or r.state = {{RUNNING}}
    ) {{log_changes}};
    return null;
end $$;

create or replace function mainspring.note_changed_runs() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp set timezone = 'UTC' as $$
begin
    with found as (
        select {{kind_of_run(r)}} || case
                   when r.state = {{RUNNING}} then 'started'
                   when o.state = {{RUNNING}} then 'requeued'
                   when r.state = {{HELD}} then 'held'
                   when r.state = {{QUEUED}} then 'queued'
                   when r.started_at is not null then 'started'
                   else 'waiting' end as change,
               r.tenant_id, l.queue, l.task, r.run_id::text as subject,
               coalesce(r.job_id, r.run_id::text) as job_id, r.spec -> 'labels' as labels,
               json_build_object({{data_of_run(r)}}, 'ready_at', r.ready_at, 'error', case when o.state = {{RUNNING}} then left(r.last_error, 2000) end) as data, 1 as number
        from old_runs o
        join new_runs r on r.run_id = o.run_id
        join mainspring.lanes l on l.lane_id = r.lane_id
        where r.state <> o.state
    ) {{log_changes}};
    return null;
end $$;

create or replace function mainspring.note_ended_runs() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp set timezone = 'UTC' as $$
begin
    with found as (
        select {{kind_of_run(r)}} || case r.state when {{SUCCESS}} then 'succeeded' when {{FAILED}} then 'failed'
                                                  when {{CANCELLED}} then 'cancelled' else 'skipped' end as change,
               r.tenant_id, l.queue, l.task, r.run_id::text as subject,
               coalesce(r.job_id, r.run_id::text) as job_id, r.spec -> 'labels' as labels,
               json_build_object({{data_of_run(r)}}, 'ended_at', r.ended_at, 'reason', r.reason, 'error', left(r.error, 2000)) as data, 1 as number
        from ended_runs r
        join mainspring.lanes l on l.lane_id = r.lane_id
    ) {{log_changes}};
    return null;
end $$;

create or replace function mainspring.note_new_jobs() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp set timezone = 'UTC' as $$
begin
    with found as (
        select 'job.created' as change, j.tenant_id, l.queue, l.task, j.job_id as subject, j.job_id,
               j.spec -> 'labels' as labels, json_build_object({{data_of_job(j)}}) as data, 1 as number
        from new_jobs j
        join mainspring.lanes l on l.lane_id = j.lane_id
    ) {{log_changes}};
    return null;
end $$;

create or replace function mainspring.note_changed_jobs() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp set timezone = 'UTC' as $$
begin
    with found as (
        select case when j.generation <> o.generation then 'job.created'
                    when j.status = o.status then 'job.changed'
                    when j.status = {{JOB_PAUSED}} then 'job.paused'
                    when j.status = {{JOB_CANCELLED}} then 'job.cancelled'
                    when j.status = {{JOB_COMPLETED}} then 'job.completed'
                    when o.status = {{JOB_COMPLETED}} then 'job.changed'
                    else 'job.resumed' end as change,
               j.tenant_id, l.queue, l.task, j.job_id as subject, j.job_id, j.spec -> 'labels' as labels,
               json_build_object({{data_of_job(j)}}) as data, 1 as number
        from old_jobs o
        join new_jobs j on j.tenant_id = o.tenant_id and j.job_id = o.job_id
        join mainspring.lanes l on l.lane_id = j.lane_id
        where (j.generation, j.status, j.version) is distinct from (o.generation, o.status, o.version)
    ) {{log_changes}};
    return null;
end $$;

create or replace function mainspring.note_missed_fires() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp set timezone = 'UTC' as $$
begin
    with found as (
        select 'job.missed' as change, j.tenant_id, l.queue, l.task, j.job_id as subject, j.job_id,
               j.spec -> 'labels' as labels, json_build_object({{data_of_job(j)}}, 'first_at', m.first_at, 'last_at', m.last_at, 'count', m.count, 'reason', m.reason) as data, 1 as number
        from new_missed m
        join mainspring.jobs j on j.tenant_id = m.tenant_id and j.job_id = m.job_id
        join mainspring.lanes l on l.lane_id = j.lane_id
    ) {{log_changes}};
    return null;
end $$;

-- Creates the triggers if `wanted`; otherwise drops them if there is no sink. Whoever adds a sink calls it in the same
-- transaction. It waits for a second at most for each table. Returns whether it has changed anything.
create or replace function mainspring.watch_changes(wanted boolean) returns boolean
language plpgsql volatile strict security definer set search_path = pg_catalog, pg_temp set lock_timeout = '1s' as $$
declare
    one record;
    is_there boolean;
    changed boolean := false;
begin
    perform pg_advisory_xact_lock({{lock_key('sinks')}});
    if not wanted and exists (select from mainspring.sinks) then
        return false;
    end if;
    for one in
        select * from (values
            ('jobs', 'insert', 'referencing new table as new_jobs', 'note_new_jobs'),
            ('jobs', 'update', 'referencing old table as old_jobs new table as new_jobs', 'note_changed_jobs'),
            ('runs', 'insert', 'referencing new table as new_runs', 'note_new_runs'),
            ('runs', 'update', 'referencing old table as old_runs new table as new_runs', 'note_changed_runs'),
            ('run_history', 'insert', 'referencing new table as ended_runs', 'note_ended_runs'),
            ('missed_fires', 'insert', 'referencing new table as new_missed', 'note_missed_fires')
        ) as t(relation, operation, tables, routine)
    loop
        is_there := exists (select from pg_trigger t where t.tgname = one.routine
                            and t.tgrelid = format('mainspring.%I', one.relation)::regclass);
        if wanted and not is_there then
            execute format('create trigger %I after %s on mainspring.%I %s for each statement execute function mainspring.%I()',
                one.routine, one.operation, one.relation, one.tables, one.routine);
            changed := true;
        elsif is_there and not wanted then
            execute format('drop trigger %I on mainspring.%I', one.routine, one.relation);
            changed := true;
        end if;
    end loop;
    return changed;
end $$;

-- The number of the last change so far, and a transaction that has begun after it. When all transactions before that one
-- have ended, every change up to the number is there or never will be. Nulls if there is none after `known`.
create or replace function mainspring.mark_changes(known bigint, out last bigint, out before bigint)
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
begin
    select case when n.is_called then n.last_value else 0 end into last from mainspring.sink_change_numbers n;
    if last <> known then
        before := pg_current_xact_id()::text::bigint;
    end if;
end $$;
