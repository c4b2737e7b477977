-- Parts of a job that is submitted in SQL: what to run, when, how often, and the rest of its spec.

-- What to run: the task's name, and the command if it is a shell task.
create or replace function mainspring.intake_task(job jsonb, out task text, out command jsonb)
language plpgsql as $$
declare
    type text := mainspring.intake_line(job -> 'job_type', 'job_type', 1, 200);
begin
    task := mainspring.intake_line(job -> 'task', 'task', 1, 200);
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
    elsif task = {{WORKFLOW_TASK}} then
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
    type text := upper(mainspring.intake_word(job -> 'schedule_type', 'schedule_type',
        array['immediate', 'future', 'interval', 'manual', 'cron', 'rrule']));
begin
    kind := 'IMMEDIATE';
    if job ? 'schedule' and job ? 'schedule_time' then
        perform mainspring.intake_refuse('schedule and schedule_time both say when', 'schedule_time',
            'give one of them');
    end if;
    if jsonb_typeof(schedule) = 'object' then
        schedule := mainspring.intake_members(schedule, 'schedule', array['at', 'every'],
            array['cron', 'rrule', 'after', 'timezone', 'anchor', 'calendar', 'outside', 'jitter', 'start', 'end',
                  'max_runs', 'exdates', 'dst']);
        if schedule ? 'at' = schedule ? 'every' then
            perform mainspring.intake_refuse('schedule needs exactly one way to say when', 'schedule',
                'give {"at": "2026-12-31T23:59:59Z"} or {"every": "10m"}');
        end if;
        fire_at := mainspring.intake_time(schedule -> 'at', 'schedule.at');
        every := round(mainspring.intake_seconds(schedule -> 'every', 'schedule.every', 1, 3162240000), 6);
        every := trim_scale(every);
        kind := case when every is null then 'FUTURE' else 'INTERVAL' end;
    elsif schedule is not null then
        if jsonb_typeof(schedule) <> 'string' or lower(btrim(schedule #>> '{}')) not in ('now', 'manual') then
            perform mainspring.intake_refuse(mainspring.intake_shown(schedule) || ' cannot be given in SQL', 'schedule',
                'give "now", "manual", {"at": ...} or {"every": ...}; cron goes over HTTP: POST /v1/jobs');
        end if;
        kind := case lower(btrim(schedule #>> '{}')) when 'now' then 'IMMEDIATE' else 'MANUAL' end;
    elsif job ? 'schedule_time' then
        fire_at := mainspring.intake_time(job -> 'schedule_time', 'schedule_time');
        kind := 'FUTURE';
    elsif type = 'MANUAL' then
        kind := 'MANUAL';
    elsif type in ('FUTURE', 'INTERVAL') then
        perform mainspring.intake_refuse('schedule_type ' || type || ' needs the field that says when',
            case type when 'FUTURE' then 'schedule_time' else 'schedule' end,
            case type when 'FUTURE' then 'add "schedule_time"' else 'add "schedule": {"every": "10m"}' end);
    end if;
    if type in ('CRON', 'RRULE') then
        perform mainspring.intake_refuse(lower(type) || ' cannot be given in SQL', 'schedule_type',
            'submit this job over HTTP: POST /v1/jobs');
    elsif type <> kind then
        perform mainspring.intake_refuse(format('schedule_type says %s, the rest of the job %s', type, kind),
            'schedule_type', 'leave schedule_type out, or give the field that goes with it');
    end if;
end $$;

-- The retry policy: the attempts, and the members that are not the default.
create or replace function mainspring.intake_retry(job jsonb, delivery text, out attempts int, out policy jsonb)
language plpgsql as $$
declare
    retry jsonb := coalesce(mainspring.intake_members(job -> 'retry', 'retry',
        array['max_attempts', 'backoff', 'base', 'cap', 'jitter'], array['rules']), '{}');
    backoff text := coalesce(mainspring.intake_word(retry -> 'backoff', 'retry.backoff',
        array['exponential', 'linear', 'fibonacci', 'constant']), 'exponential');
    base numeric := coalesce(mainspring.intake_seconds(retry -> 'base', 'retry.base', 0, 3162240000), 2);
    cap numeric := coalesce(mainspring.intake_seconds(retry -> 'cap', 'retry.cap', 0, 3162240000), greatest(600, base));
    jitter jsonb := retry -> 'jitter';
    field text := case when job ? 'retries' then 'retries' when job ? 'max_retries' then 'max_retries'
                       else 'retry.max_attempts' end;
begin
    if (job ? 'retries')::int + (job ? 'max_retries')::int + (retry ? 'max_attempts')::int > 1 then
        perform mainspring.intake_refuse('retries, max_retries and retry.max_attempts all say how often', field,
            'give one of them');
    end if;
    attempts := coalesce(
        mainspring.intake_whole(job -> 'retries', 'retries', 0, 999) + 1,
        mainspring.intake_whole(job -> 'max_retries', 'max_retries', 0, 999) + 1,
        mainspring.intake_whole(retry -> 'max_attempts', 'retry.max_attempts', 1, 1000),
        case delivery when 'at_most_once' then 1 else 4 end);
    if attempts > 1 and delivery = 'at_most_once' then
        perform mainspring.intake_refuse('at_most_once is never tried again', field, 'leave it out');
    end if;
    if jitter is not null and (jsonb_typeof(jitter) <> 'number' or jitter::numeric not between 0 and 1) then
        perform mainspring.intake_refuse(mainspring.intake_shown(jitter) || ' is out of range', 'retry.jitter',
            'give a share from 0 to 1');
    end if;
    policy := jsonb_strip_nulls(jsonb_build_object(
        'max_attempts', nullif(attempts, 4), 'backoff', nullif(backoff, 'exponential'), 'base', nullif(base, 2),
        'cap', nullif(cap, 600), 'jitter', nullif(jitter, '0.1')));
end $$;

-- The spec: the part of a definition that SQL does not read. Null if all of it is default.
create or replace function mainspring.intake_spec(job jsonb, command jsonb, out attempts int, out spec json)
language plpgsql as $$
declare
    delivery text := coalesce(mainspring.intake_word(job -> 'delivery', 'delivery',
        array['at_least_once', 'at_most_once']), 'at_least_once');
    misfire jsonb := coalesce(mainspring.intake_members(job -> 'misfire', 'misfire', array['policy', 'grace', 'cap'],
        array[]::text[]), '{}');
    retry jsonb;
    whole jsonb;
begin
    if jsonb_typeof(job -> 'description') <> 'string' or length(job ->> 'description') > 10000 then
        perform mainspring.intake_refuse('description is not a string, or is too long', 'description',
            'give at most 10000 characters');
    end if;
    select r.attempts, r.policy into attempts, retry from mainspring.intake_retry(job, delivery) as r;
    misfire := jsonb_strip_nulls(jsonb_build_object(
        'policy', nullif(mainspring.intake_word(misfire -> 'policy', 'misfire.policy', array['skip', 'once', 'all']),
                         'once'),
        'grace', mainspring.intake_seconds(misfire -> 'grace', 'misfire.grace', 0, 3162240000),
        'cap', nullif(mainspring.intake_whole(misfire -> 'cap', 'misfire.cap', 1, 1000), 100)));
    whole := jsonb_strip_nulls(jsonb_build_object(
        'timeout', nullif(mainspring.intake_seconds(job -> 'timeout', 'timeout', 0.001, 2592000), 3600),
        {{SUBMIT_SPEC_MEMBERS}},
        'retry', nullif(retry, '{}'), 'misfire', nullif(misfire, '{}'), 'delivery', nullif(delivery, 'at_least_once'),
        'command', command, 'owner', mainspring.intake_line(job -> 'owner', 'owner', 0, 10000),
        'description', job -> 'description',
        'labels', mainspring.intake_labels(job -> 'labels', 'labels', 64, 0)::jsonb,
        'keep_payload', nullif(mainspring.intake_kept(job -> 'keep_payload', 'keep_payload'), {{KEPT_PAYLOAD}}),
        'idempotency_key', mainspring.intake_line(job -> 'idempotency_key', 'idempotency_key', 1, 200)));
    spec := nullif(whole, '{}')::text::json;
end $$;
