-- stage: pre
-- A nominal time of a job fires once, whatever jitter, calendars and changes do to its final time.

-- Servers of before have stored schedules without the seed that `H` and jitter need: the hash (CRC-32) of tenant and id of
-- the job. They get it back. The version rises, so that a fire that was prepared before fails.
do $$
declare
    steps constant bigint[] := array[0, 498536548, 997073096, 651767980, 1994146192, 1802195444, 1303535960, 1342533948,
        3988292384, 4027552580, 3604390888, 3412177804, 2607071920, 2262029012, 2685067896, 3183342108];
    lost record;
    bytes bytea;
    byte int;
    crc bigint;
    seed jsonb;
begin
    for lost in
        select distinct s.tenant_id, s.job_id
        from (select tenant_id, job_id, schedule from mainspring.jobs
              union all select tenant_id, job_id, schedule from mainspring.backfills
              union all select tenant_id, job_id, job -> 'schedule' from mainspring.past_jobs) as s
        where s.schedule ->> 'seed' is null
          and (s.schedule ->> 'jitter' is not null or s.schedule ->> 'cron' ~* '(?<![a-z])h(?![a-z])')
    loop
        bytes := convert_to(lost.tenant_id || '/' || lost.job_id, 'UTF8');
        crc := 4294967295;
        for at in 0 .. length(bytes) - 1 loop
            byte := get_byte(bytes, at);
            crc := (crc >> 4) # steps[((crc # byte) & 15) + 1];
            crc := (crc >> 4) # steps[((crc # (byte >> 4)) & 15) + 1];
        end loop;
        seed := jsonb_build_object('seed', crc # 4294967295);
        update mainspring.jobs j
        set schedule = (j.schedule::jsonb || seed)::json, version = j.version + 1,
            pruned_version = case when j.pruned_version = j.version then j.version + 1 end
        where j.tenant_id = lost.tenant_id and j.job_id = lost.job_id and j.schedule ->> 'seed' is null
          and (j.schedule ->> 'jitter' is not null or j.schedule ->> 'cron' ~* '(?<![a-z])h(?![a-z])');
        update mainspring.backfills b
        set schedule = (b.schedule::jsonb || seed)::json
        where b.tenant_id = lost.tenant_id and b.job_id = lost.job_id and b.schedule ->> 'seed' is null
          and (b.schedule ->> 'jitter' is not null or b.schedule ->> 'cron' ~* '(?<![a-z])h(?![a-z])');
        update mainspring.past_jobs p
        set job = jsonb_set(p.job::jsonb, '{schedule}', (p.job::jsonb -> 'schedule') || seed)::json
        where p.tenant_id = lost.tenant_id and p.job_id = lost.job_id and p.job -> 'schedule' ->> 'seed' is null
          and (p.job -> 'schedule' ->> 'jitter' is not null
               or p.job -> 'schedule' ->> 'cron' ~* '(?<![a-z])h(?![a-z])');
    end loop;
    -- Their next fires follow the seed: every job is looked at again (0025).
    if found and to_regclass('mainspring.schedule_libraries') is not null then
        update mainspring.schedule_libraries set walking = true, after_tenant = 0, after_job = '', recomputed = 0;
    end if;
end $$;

-- All nominal times up to it are dealt with: they have run, are recorded as skipped or missed, or do not count. It only
-- rises. Null: as last_fired_for.
alter table mainspring.jobs add column last_nominal_for timestamptz;

-- The nominal time of a run of a schedule. Null: it is scheduled_for, because the schedule has no jitter.
alter table mainspring.runs add column nominal_for timestamptz;
alter table mainspring.run_history add column nominal_for timestamptz;
create unique index runs_nominal on mainspring.runs (tenant_id, job_id, generation, trigger, nominal_for)
    nulls not distinct where nominal_for is not null;
