-- Parts of a job that is submitted in SQL: what to run, when, how often, and the rest of its spec.

-- What to run: the task's name, and the command if it is a shell task.
create or replace function mainspring.intake_task(job jsonb, out task text, out command jsonb)
language plpgsql as $$
declare
    type text := job ->> 'job_type';
begin
    task := job ->> 'task';
    if task <> type then
        perform mainspring.intake_refuse('task and job_type name two tasks', 'job_type',
            'they mean the same; give one');
    end if;
    task := coalesce(task, type);
    command := mainspring.intake_command(job -> 'command', 'command');
    if command is not null then
        if task <> 'shell' then
            perform mainspring.intake_refuse('command goes with the task shell alone', 'command', 'leave out the task');
        end if;
        task := 'shell';
        return;
    end if;
    task := coalesce(task, job ->> 'name', job ->> 'job_id');
    if task is null then
        perform mainspring.intake_refuse('nothing says what to run', 'task',
            'give task, job_type, command, or a name that is a task''s');
    elsif task = any ({{SUBMIT_KINDS_ELSEWHERE}}) then
        perform mainspring.intake_refuse(task || ' tasks cannot be given in SQL', 'task',
            'submit this job over HTTP: POST /v1/jobs');
    elsif task in ({{SERVER_TASKS}}) then
        perform mainspring.intake_refuse('the task ' || task || ' is reserved for workflows', 'task',
            'see POST /v1/workflows');
    elsif task = 'shell' then
        command := coalesce(nullif(job #> '{payload,command}', 'null'), nullif(job #> '{payload,argv}', 'null'));
        if command is null then
            perform mainspring.intake_refuse('a shell task needs a command', 'command', '"command": "echo hello"');
        end if;
        if nullif(job #> '{payload,command}', 'null') is null and jsonb_typeof(command) = 'string' then
            perform mainspring.intake_refuse('payload.argv is not a list', 'payload.argv', 'such as ["echo", "hello"]');
        end if;
        command := mainspring.intake_command(command, 'payload');
    end if;
end $$;

-- When to run: kind is IMMEDIATE, FUTURE (fire_at), INTERVAL (every, in seconds) or MANUAL.
create or replace function mainspring.intake_schedule(job jsonb, out kind text, out fire_at timestamptz, out every numeric)
language plpgsql as $$
declare
    schedule jsonb := job -> 'schedule';
    type text := upper(job ->> 'schedule_type');
begin
    kind := 'IMMEDIATE';
    if job ? 'schedule' and job ? 'schedule_time' then
        perform mainspring.intake_refuse('schedule and schedule_time both say when', 'schedule_time',
            'give one of them');
    end if;
    if jsonb_typeof(schedule) = 'object' then
        schedule := {{SUBMIT_SCHEDULE}};
        if schedule ? 'at' = schedule ? 'every' then
            perform mainspring.intake_refuse('schedule needs exactly one way to say when', 'schedule',
                'give {"at": "2026-12-31T23:59:59Z"} or {"every": "10m"}');
        end if;
        fire_at := (schedule ->> 'at')::timestamptz;
        every := trim_scale(round((schedule -> 'every')::numeric, 6));
        kind := case when every is null then 'FUTURE' else 'INTERVAL' end;
    elsif schedule is not null then
        if jsonb_typeof(schedule) <> 'string' or lower(btrim(schedule #>> '{}')) not in ('now', 'manual') then
            perform mainspring.intake_refuse(mainspring.intake_shown(schedule) || ' cannot be given in SQL', 'schedule',
                'give "now", "manual", {"at": ...} or {"every": ...}; cron goes over HTTP: POST /v1/jobs');
        end if;
        kind := case lower(btrim(schedule #>> '{}')) when 'now' then 'IMMEDIATE' else 'MANUAL' end;
    elsif job ? 'schedule_time' then
        fire_at := (job ->> 'schedule_time')::timestamptz;
        kind := 'FUTURE';
    elsif type = 'MANUAL' then
        kind := 'MANUAL';
    elsif type in ('FUTURE', 'INTERVAL') then
        perform mainspring.intake_refuse('schedule_type ' || type || ' needs the field that says when',
            case type when 'FUTURE' then 'schedule_time' else 'schedule' end,
            case type when 'FUTURE' then 'add "schedule_time"' else 'add "schedule": {"every": "10m"}' end);
    end if;
    if type <> kind then
        perform mainspring.intake_refuse(format('schedule_type says %s, the rest of the job %s', type, kind),
            'schedule_type', 'leave schedule_type out, or give the field that goes with it');
    end if;
end $$;

-- How often a run is attempted. Three fields can say it. Returns the job with this in its retry policy.
create or replace function mainspring.intake_attempts(job jsonb) returns jsonb
language plpgsql as $$
declare
    once constant boolean := coalesce(job ->> 'delivery' = {{AT_MOST_ONCE}}, false);
    field constant text := case when job ? 'retries' then 'retries' when job ? 'max_retries' then 'max_retries'
                                else 'retry.max_attempts' end;
    policy jsonb := coalesce(job -> 'retry', '{}');
    attempts int;
begin
    if (job ? 'retries')::int + (job ? 'max_retries')::int + (policy ? 'max_attempts')::int > 1 then
        perform mainspring.intake_refuse('retries, max_retries and retry.max_attempts all say how often', field,
            'give one of them');
    end if;
    attempts := coalesce((job ->> 'retries')::int + 1, (job ->> 'max_retries')::int + 1,
        (policy ->> 'max_attempts')::int, case when once then 1 else {{SUBMIT_ATTEMPTS}} end);
    if once and attempts > 1 then
        perform mainspring.intake_refuse('at_most_once is never tried again', field, 'leave it out');
    end if;
    if not policy ? 'cap' and (policy ->> 'base')::numeric > {{SUBMIT_BACKOFF_CAP}} then
        policy := policy || jsonb_build_object('cap', policy -> 'base');
    end if;
    return job || jsonb_build_object('retry', policy || jsonb_build_object('max_attempts', attempts));
end $$;

-- The spec: the part of a definition that SQL does not read. Null if all of it is default.
create or replace function mainspring.stored_spec(job jsonb, command jsonb) returns json
language plpgsql immutable as $$
begin
    return nullif(jsonb_strip_nulls(jsonb_build_object('command', command) || {{SUBMIT_SPEC_MEMBERS}}), '{}')::text::json;
end $$;
