-- Transactional submit: mainspring.submit(jsonb), called on the user's own connection in the user's own transaction.
-- The guide is docs/transactional-submit.md, the reasons are in docs/decisions/0012-transactional-submit.md.

-- What a transaction has submitted and not yet stored: rows come and go within one transaction, so nothing of it needs
-- to survive a crash. The trigger below moves them to runs and jobs when the transaction commits.
create unlogged table mainspring.submissions (
    xact          xid8 not null default pg_current_xact_id(),
    turn          bigint generated always as identity,
    tenant_id     int not null,
    run_id        uuid not null,
    job_id        text,
    queue         text not null,
    priority      smallint not null,
    task          text not null,
    labels        text not null,
    kind          text not null,
    fire_at       timestamptz,
    every         numeric,
    overlap       smallint not null,
    max_attempts  smallint not null,
    name          text,
    payload       json,
    spec          json,
    primary key (xact, turn)
);

-- ---------------------------------------------------------------------------------------------- refusals and fields

create function mainspring.intake_refuse(message text, field text, hint text) returns void
language plpgsql as $$
begin
    raise exception using errcode = 'invalid_parameter_value', message = message, detail = field, hint = hint;
end $$;

create function mainspring.intake_shown(value jsonb) returns text
language sql immutable as $$
    select case when length(value::text) <= 60 then value::text else left(value::text, 60) || '...' end
$$;

-- The members of an object that are not null, after a look at their names.
create function mainspring.intake_members(value jsonb, field text, known text[], elsewhere text[]) returns jsonb
language plpgsql strict as $$
declare
    path text := case when field = '' then '' else field || '.' end;
    member text;
    members jsonb;
begin
    if jsonb_typeof(value) <> 'object' then
        perform mainspring.intake_refuse(coalesce(nullif(field, ''), 'the job') || ' is not an object',
            coalesce(nullif(field, ''), '$'), 'such as {"task": "report.generate", "payload": {"region": "eu"}}');
    end if;
    select coalesce(jsonb_object_agg(m.key, m.value), '{}') into members
    from jsonb_each(value) as m where m.value <> 'null';
    for member in select jsonb_object_keys(members) loop
        if member = any (elsewhere) then
            perform mainspring.intake_refuse(path || member || ' cannot be given in SQL', path || member,
                'submit this job over HTTP: POST /v1/jobs');
        end if;
    end loop;
    for member in select jsonb_object_keys(value) loop
        if member <> all (known) and member <> all (elsewhere) then
            perform mainspring.intake_refuse(format('unknown field %L', left(member, 100)), path || left(member, 100),
                'known are: ' || array_to_string(known, ', '));
        end if;
    end loop;
    return members;
end $$;

-- One line without control characters.
create function mainspring.intake_line(value jsonb, field text, lowest int, most int) returns text
language plpgsql strict as $$
declare
    line text := value #>> '{}';
begin
    if jsonb_typeof(value) <> 'string' then
        perform mainspring.intake_refuse(field || ' is not a string', field, 'put it in quotes');
    end if;
    if length(line) not between lowest and most then
        perform mainspring.intake_refuse(
            field || case when length(line) < lowest then ' is empty' else ' is too long' end, field,
            format('give %s to %s characters', lowest, most));
    end if;
    if line ~ '[\u0001-\u001f\u007f-\u009f]' then
        perform mainspring.intake_refuse(field || ' holds a control character', field, 'write one line of plain text');
    end if;
    return line;
end $$;

-- One of a few words, in any case.
create function mainspring.intake_word(value jsonb, field text, words text[]) returns text
language plpgsql strict as $$
begin
    if jsonb_typeof(value) <> 'string' or lower(value #>> '{}') <> all (words) then
        perform mainspring.intake_refuse(mainspring.intake_shown(value) || ' is unknown', field,
            'choose one of ' || array_to_string(words, ', '));
    end if;
    return lower(value #>> '{}');
end $$;

create function mainspring.intake_whole(value jsonb, field text, lowest int, most int) returns int
language plpgsql strict as $$
begin
    if jsonb_typeof(value) <> 'number' or value::text !~ '^-?[0-9]+$' or value::numeric not between lowest and most then
        perform mainspring.intake_refuse(mainspring.intake_shown(value) || ' is out of range', field,
            format('give a whole number from %s to %s', lowest, most));
    end if;
    return value::int;
end $$;

-- Durations: "90s", "15m", "1h30m", or a number of seconds.
create function mainspring.intake_seconds(value jsonb, field text, lowest numeric, most numeric) returns numeric
language plpgsql strict as $$
declare
    words text := lower(btrim(value #>> '{}', E' \t\n\r\f\x0b'));
    seconds numeric;
begin
    if jsonb_typeof(value) = 'number' then
        seconds := value::numeric;
    elsif jsonb_typeof(value) = 'string' and length(words) <= 400 then
        if words ~ '^([0-9]+(\.[0-9]+)?(ms|s|m|h|d|w))+$' then
            select sum(part[1]::numeric * case part[3] when 'ms' then 0.001 when 's' then 1 when 'm' then 60
                       when 'h' then 3600 when 'd' then 86400 else 604800 end) into seconds
            from regexp_matches(words, '([0-9]+(\.[0-9]+)?)(ms|s|m|h|d|w)', 'g') as part;
        elsif words ~ '^[+-]?[0-9]+(\.[0-9]+)?$' then
            seconds := words::numeric;
        end if;
    end if;
    if seconds is null then
        perform mainspring.intake_refuse(mainspring.intake_shown(value) || ' is not a duration', field,
            'write "90s", "15m", "1h30m", or a number of seconds');
    elsif seconds not between lowest and most then
        perform mainspring.intake_refuse(mainspring.intake_shown(value) || ' is out of range', field,
            format('give %s to %s seconds', lowest, most));
    end if;
    return trim_scale(seconds);
end $$;

create function mainspring.intake_time(value jsonb, field text) returns timestamptz
language plpgsql strict as $$
declare
    words text := upper(value #>> '{}');
    moment timestamptz;
begin
    if words ~ '^[0-9]{4}-[0-9]{2}-[0-9]{2}([T ][0-9:.]*)?$' then
        perform mainspring.intake_refuse(mainspring.intake_shown(value) || ' has no time zone', field,
            'add one, such as "2026-12-31T23:59:59Z" or "2026-12-31T23:59:59+01:00"');
    end if;
    if jsonb_typeof(value) = 'string' and words ~ ('^[0-9]{4}-[0-9]{2}-[0-9]{2}[T ]([01][0-9]|2[0-3]):[0-5][0-9]'
                                                   '(:[0-5][0-9](\.[0-9]+)?)?(Z|[+-][0-9]{2}(:?[0-9]{2})?)$') then
        begin
            -- Python cuts what is finer than a microsecond; a cast would round it.
            moment := regexp_replace(words, '(\.[0-9]{6})[0-9]+', '\1')::timestamptz;
        exception when data_exception then
            moment := null;
        end;
    end if;
    if moment is null or extract(year from moment at time zone 'UTC') not between 1900 and 9998 then
        perform mainspring.intake_refuse(mainspring.intake_shown(value) || ' is not a time', field,
            'write RFC 3339, such as "2026-12-31T23:59:59Z"');
    end if;
    return moment;
end $$;

-- Names and texts, sorted and spelt as the servers spell them: lanes are found by this text.
create function mainspring.intake_labels(value jsonb, field text, most int, shortest int) returns text
language plpgsql strict as $$
declare
    label record;
begin
    if jsonb_typeof(value) <> 'object' then
        perform mainspring.intake_refuse(field || ' is not an object', field, 'such as {"team": "bi"}');
    end if;
    if (select count(*) from jsonb_object_keys(value)) > most then
        perform mainspring.intake_refuse('too many labels', field, format('give at most %s', most));
    end if;
    for label in select * from jsonb_each(value) loop
        perform mainspring.intake_line(to_jsonb(label.key), field, 1, 200);
        perform mainspring.intake_line(label.value, field, shortest, 200);
    end loop;
    return (select '{' || string_agg(to_json(l.key)::text || ':' || to_json(l.value)::text, ','
                                     order by l.key collate "C") || '}'
            from jsonb_each_text(value) as l);
end $$;

-- A command: text, or a list of texts.
create function mainspring.intake_command(value jsonb, field text) returns jsonb
language plpgsql strict as $$
declare
    parts jsonb := case when jsonb_typeof(value) = 'array' then value else jsonb_build_array(value) end;
begin
    if exists (select from jsonb_array_elements(parts) as p where jsonb_typeof(p.value) <> 'string') then
        perform mainspring.intake_refuse(field || ' is not a command', field, 'give a string or a list of strings');
    end if;
    if coalesce(parts ->> 0, '') !~ '\S' then
        perform mainspring.intake_refuse('the command is empty', field, 'such as "echo hello" or ["echo", "hello"]');
    end if;
    if (select sum(octet_length(p.value)) from jsonb_array_elements_text(parts) as p) > 131071 then
        perform mainspring.intake_refuse('the command is too long', field, 'put it in a script');
    end if;
    return value;
end $$;

-- ------------------------------------------------------------------------------------------------ parts of a request

-- What to run: the task's name, and the command if it is a shell task.
create function mainspring.intake_task(job jsonb, out task text, out command jsonb)
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
    elsif task = 'http' then
        perform mainspring.intake_refuse('http tasks cannot be given in SQL', 'task',
            'submit this job over HTTP: POST /v1/jobs');
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

-- When: kind is IMMEDIATE, FUTURE (fire_at), INTERVAL (every, in seconds) or MANUAL.
create function mainspring.intake_schedule(job jsonb, out kind text, out fire_at timestamptz, out every numeric)
language plpgsql as $$
declare
    schedule jsonb := job -> 'schedule';
    type text := upper(mainspring.intake_word(job -> 'schedule_type', 'schedule_type',
        array['immediate', 'future', 'interval', 'manual', 'cron']));
begin
    kind := 'IMMEDIATE';
    if job ? 'schedule' and job ? 'schedule_time' then
        perform mainspring.intake_refuse('schedule and schedule_time both say when', 'schedule_time',
            'give one of them');
    end if;
    if jsonb_typeof(schedule) = 'object' then
        schedule := mainspring.intake_members(schedule, 'schedule', array['at', 'every'],
            array['cron', 'rrule', 'after', 'timezone', 'anchor', 'calendar', 'jitter']);
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
    if type = 'CRON' then
        perform mainspring.intake_refuse('cron cannot be given in SQL', 'schedule_type',
            'submit this job over HTTP: POST /v1/jobs');
    elsif type <> kind then
        perform mainspring.intake_refuse(format('schedule_type says %s, the rest of the job %s', type, kind),
            'schedule_type', 'leave schedule_type out, or give the field that goes with it');
    end if;
end $$;

-- How often: attempts, and the rest of the policy where it is not the default.
create function mainspring.intake_retry(job jsonb, delivery text, out attempts int, out policy jsonb)
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

-- The part of a definition that SQL never looks into; null when all of it is default.
create function mainspring.intake_spec(job jsonb, command jsonb, out attempts int, out spec json)
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
        perform mainspring.intake_refuse('description is no text, or too long', 'description',
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
        'run_timeout', mainspring.intake_seconds(job -> 'run_timeout', 'run_timeout', 0.001, 2592000),
        'retry', nullif(retry, '{}'), 'misfire', nullif(misfire, '{}'), 'delivery', nullif(delivery, 'at_least_once'),
        'command', command, 'owner', mainspring.intake_line(job -> 'owner', 'owner', 0, 10000),
        'description', job -> 'description',
        'labels', mainspring.intake_labels(job -> 'labels', 'labels', 64, 0)::jsonb,
        'idempotency_key', mainspring.intake_line(job -> 'idempotency_key', 'idempotency_key', 1, 200)));
    spec := nullif(whole, '{}')::text::json;
end $$;

-- ------------------------------------------------------------------------------------------------ ids, keys, shards

-- UUIDv7: 48 bits of milliseconds, the rest random.
create function mainspring.new_id() returns uuid
language sql volatile as $$
    select encode(set_bit(set_bit(
        overlay(uuid_send(gen_random_uuid()) placing substring(int8send(milliseconds) from 3) from 1 for 6),
        52, 1), 53, 1), 'hex')::uuid
    from (select floor(extract(epoch from (select clock_timestamp())) * 1000)::bigint as milliseconds) as t
$$;

-- The shard of a job, as the servers reckon it: CRC-32 of "tenant/job_id", modulo 128.
create function mainspring.shard_of(tenant int, job text) returns smallint
language plpgsql immutable strict as $$
declare
    steps constant bigint[] := array[0, 498536548, 997073096, 651767980, 1994146192, 1802195444, 1303535960, 1342533948,
        3988292384, 4027552580, 3604390888, 3412177804, 2607071920, 2262029012, 2685067896, 3183342108];
    bytes bytea := convert_to(tenant || '/' || job, 'UTF8');
    crc bigint := 4294967295;
    byte int;
begin
    for at in 0 .. length(bytes) - 1 loop
        byte := get_byte(bytes, at);
        crc := (crc >> 4) # steps[((crc # byte) & 15) + 1];
        crc := (crc >> 4) # steps[((crc # (byte >> 4)) & 15) + 1];
    end loop;
    return (crc # 4294967295) & 127;
end $$;

-- ----------------------------------------------------------------------------------------------------------- submit

-- `given` with the options of its task laid under it: the rule is that of the servers (domain/task_options.py), who put
-- options in plain numbers and words before they store them. What a job in SQL cannot say itself is in `beyond`, in the words of a stored
-- spec, with the rules of the retry apart.
create function mainspring.intake_options(given jsonb, options jsonb, out filled jsonb, out beyond jsonb)
language plpgsql immutable as $$
declare
    retry jsonb := (options -> 'retry') - 'rules';
begin
    filled := jsonb_strip_nulls(jsonb_build_object('queue', options -> 'queue', 'priority', options -> 'priority',
        'timeout', options -> 'timeout', 'run_timeout', options -> 'run_timeout', 'delivery', options -> 'delivery'))
        || given;
    if given ?| array['retries', 'max_retries'] or lower(given ->> 'delivery') = 'at_most_once' then
        retry := retry - 'max_attempts'; -- the job says how often
    end if;
    -- What is no object is left as it is, to be refused.
    if retry is not null and coalesce(jsonb_typeof(given -> 'retry'), 'object') = 'object' then
        filled := filled || jsonb_build_object('retry', retry || coalesce(jsonb_strip_nulls(given -> 'retry'), '{}'));
    end if;
    if options ? 'required_labels' and coalesce(jsonb_typeof(given -> 'required_labels'), 'object') = 'object' then
        filled := filled || jsonb_build_object('required_labels',
            (options -> 'required_labels') || coalesce(given -> 'required_labels', '{}'));
    end if;
    beyond := nullif(jsonb_strip_nulls(jsonb_build_object(
        'setup', nullif(jsonb_strip_nulls(jsonb_build_object('env', options -> 'env', 'limits', options -> 'limits',
            'kill_grace', options -> 'kill_grace')), '{}'),
        'rules', (select jsonb_agg(jsonb_build_object('then', r.rule -> 'then', 'errors', r.rule -> 'error',
                      'exit_codes', r.rule -> 'exit_code', 'http_statuses', r.rule -> 'http_status',
                      'after', r.rule -> 'after') order by r.turn)
                  from jsonb_array_elements(options #> '{retry,rules}') with ordinality as r (rule, turn)))), '{}');
end $$;

-- A spec, and what lies beyond it.
create function mainspring.intake_beyond(spec jsonb, beyond jsonb) returns json
language sql immutable as $$
    select (coalesce(spec, '{}') || (beyond - 'rules') || case when beyond ? 'rules'
        then jsonb_build_object('retry', coalesce(spec -> 'retry', '{}')
                                         || jsonb_build_object('rules', beyond -> 'rules'))
        else '{}' end)::text::json
$$;

-- Takes the body of POST /v1/jobs and gives the job_id. What it writes is part of the caller's transaction.
create function mainspring.submit(job jsonb) returns text
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
    tenant constant int := 1;
    known constant text[] := array['job_id', 'name', 'task', 'job_type', 'command', 'payload', 'schedule',
        'schedule_type', 'schedule_time', 'queue', 'priority', 'timeout', 'run_timeout', 'required_labels', 'retry',
        'retries', 'max_retries', 'misfire', 'overlap', 'delivery', 'idempotency_key', 'owner', 'description', 'labels'];
    elsewhere constant text[] := array['http', 'cron_expression', 'timezone', 'kill_grace', 'env', 'limits',
        'sandbox', 'depends_on', 'dependencies', 'notify', 'concurrency', 'rate_limit', 'circuit_breaker'];
    given jsonb;
    options jsonb;
    beyond jsonb;
    own_id uuid := mainspring.new_id();
    chosen text;
    once text;
    digest bytea;
    before record;
    what record;
    "when" record;
    how record;
    levels constant text[] := array['low', 'normal', 'high', 'critical'];
    level text;
begin
    if job is null then
        perform mainspring.intake_refuse('the job is null', '$', 'such as {"task": "report.generate"}');
    end if;
    given := mainspring.intake_members(job, '', known, elsewhere);
    chosen := mainspring.intake_line(given -> 'job_id', 'job_id', 1, 200);
    if chosen !~ '^[A-Za-z0-9._-]+$' then
        perform mainspring.intake_refuse(mainspring.intake_shown(given -> 'job_id') || ' cannot be a job_id', 'job_id',
            'use letters, digits, and . _ -');
    end if;
    perform mainspring.intake_line(given -> 'name', 'name', 1, 200);
    if jsonb_typeof(given -> 'payload') <> 'object' then
        perform mainspring.intake_refuse('the payload is not an object', 'payload', 'such as {"a": 1}');
    elsif octet_length((given -> 'payload')::text) > 262144 then
        perform mainspring.intake_refuse(format('the payload has %s bytes', octet_length((given -> 'payload')::text)),
            'payload', 'give at most 262144 bytes: store it elsewhere and send a reference');
    end if;
    select * into what from mainspring.intake_task(given);
    if what.command is not null and octet_length((given -> 'payload')::text) > 122880 then
        perform mainspring.intake_refuse(format('the payload has %s bytes', octet_length((given -> 'payload')::text)),
            'payload', 'give at most 122880 bytes to a command, which has it as a variable: name a file in it instead');
    end if;
    -- Where the tenant's own workers declare nothing about a task, what shared ones (tenant 0) declare holds.
    options := (select (s.schema -> 'x-mainspring-options')::jsonb from mainspring.task_signatures s
                where s.tenant_id in (tenant, 0) and s.task = what.task order by s.tenant_id desc limit 1);
    if options is not null then
        select o.filled, o.beyond into given, beyond from mainspring.intake_options(given, options) as o;
    end if;
    level := mainspring.intake_word(case jsonb_typeof(given -> 'priority') when 'number'
        then to_jsonb((given -> 'priority')::text) else given -> 'priority' end, 'priority',
        levels || array['0', '1', '2', '3']);
    select * into "when" from mainspring.intake_schedule(given);
    select * into how from mainspring.intake_spec(given, what.command);

    -- First the key, then the id, as the servers do. Whoever holds one of them in an open transaction is waited for.
    once := given ->> 'idempotency_key';
    if once is not null then
        digest := sha256(convert_to(job::text, 'UTF8'));
        insert into mainspring.idempotency_keys (tenant_id, key, body_hash, job_id)
        values (tenant, once, digest, coalesce(chosen, own_id::text))
        on conflict do nothing;
        if not found then
            select k.body_hash, k.job_id into strict before
            from mainspring.idempotency_keys k where k.tenant_id = tenant and k.key = once;
            if before.body_hash <> digest then
                raise exception using errcode = 'unique_violation', detail = 'idempotency_key',
                    message = format('the idempotency key %L was used with another body', once),
                    hint = 'send the same body, or a new key';
            end if;
            return before.job_id;
        end if;
    end if;
    if chosen is not null then
        insert into mainspring.taken_ids (tenant_id, job_id) values (tenant, chosen) on conflict do nothing;
        if not found or mainspring.made_here(tenant, chosen) then
            raise exception using errcode = 'unique_violation', detail = 'job_id',
                message = format('a job called %L exists already', chosen), hint = 'choose another job_id';
        end if;
    end if;

    insert into mainspring.submissions
        (tenant_id, run_id, job_id, queue, priority, task, labels, kind, fire_at, every, overlap, max_attempts, name,
         payload, spec)
    values (tenant, own_id, chosen,
            coalesce(mainspring.intake_line(given -> 'queue', 'queue', 1, 200), 'default'),
            coalesce(array_position(levels, level) - 1, level::int, 1), what.task,
            coalesce(mainspring.intake_labels(given -> 'required_labels', 'required_labels', 16, 1), ''),
            "when".kind, "when".fire_at, "when".every,
            case mainspring.intake_word(given -> 'overlap', 'overlap', array['skip', 'allow'])
                when 'allow' then 1 else 0 end,
            how.attempts, coalesce(given ->> 'name', chosen), (given -> 'payload')::text::json,
            case when beyond is null then how.spec else mainspring.intake_beyond(how.spec::jsonb, beyond) end);
    return coalesce(chosen, own_id::text);
end $$;

-- Whether this id was made by us for another job: such ids are not among those that clients took.
create function mainspring.made_here(tenant int, job text) returns boolean
language sql stable as $$
    select case when job ~* '^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$' then
        exists (select from mainspring.jobs j where j.tenant_id = tenant and j.job_id = job)
        or exists (select from mainspring.runs r
                   where r.tenant_id = tenant and r.run_id = job::uuid and r.job_id is null)
        or exists (select from mainspring.run_history h
                   where h.tenant_id = tenant and h.run_id = job::uuid and h.job_id is null)
    else false end
$$;

-- At commit: all that this transaction has submitted becomes runs and jobs. The trigger fires for each row, and the
-- first does the work for all. Each looks from its own row on, as behind it lie dead ones: looking at them all made
-- 1,000 submissions take 94 ms to commit instead of 12. Now is the time to take a number for a new lane (others wait
-- for it, and only until this commit is through) and to say when runs became ready (workers do not look for runs that
-- became ready long ago, and the transaction may have been open for long).
create function mainspring.store_submissions() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    moment constant timestamptz := (select clock_timestamp());
    born text;
    soonest timestamptz;
begin
    if not exists (select from mainspring.submissions where xact = new.xact and turn = new.turn) then
        return null; -- stored with an earlier one
    end if;
    if exists (select from mainspring.submissions s
               where s.xact = new.xact and s.turn >= new.turn and not exists (select from mainspring.lanes l
                   where l.tenant_id = s.tenant_id and l.queue = s.queue and l.priority = s.priority
                     and l.task = s.task and l.labels = s.labels)) then
        -- One at a time, and the number is drawn after the lock; see sql/lanes.sql.
        perform pg_advisory_xact_lock(hashtext('mainspring.lanes'));
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

    with inserted as (
        insert into mainspring.runs (run_id, tenant_id, lane_id, state, max_attempts, exclusive, scheduled_for,
                                     ready_at, job_id, name, payload, spec)
        select s.run_id, s.tenant_id, l.lane_id, 1, s.max_attempts,
               coalesce(s.spec ->> 'delivery' = 'at_most_once', false), moment, moment, s.job_id, s.name, s.payload,
               s.spec
        from mainspring.submissions s
        join mainspring.lanes l using (tenant_id, queue, priority, task, labels)
        where s.xact = new.xact and s.turn >= new.turn and s.kind = 'IMMEDIATE'
        order by s.turn
        returning lane_id
    )
    select string_agg(b.lane_id || ':' || b.runs, ',') into born
    from (select lane_id, count(*) as runs from inserted group by lane_id limit 100) as b;

    with inserted as (
        insert into mainspring.jobs (tenant_id, job_id, lane_id, shard, status, overlap, max_attempts, one_time,
                                     id_generated, next_fire_at, created_at, updated_at, name, schedule, payload, spec)
        select s.tenant_id, w.job_id, l.lane_id, mainspring.shard_of(s.tenant_id, w.job_id), 1, s.overlap,
               s.max_attempts, s.kind = 'FUTURE', s.job_id is null, w.fire_at, moment, moment, s.name,
               json_strip_nulls(json_build_object(
                   'kind', s.kind, 'every', s.every,
                   'at', to_char(s.fire_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'),
                   'anchor', case s.kind when 'INTERVAL'
                             then to_char(moment at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"') end)),
               s.payload, s.spec
        from mainspring.submissions s
        join mainspring.lanes l using (tenant_id, queue, priority, task, labels),
        lateral (select coalesce(s.job_id, s.run_id::text) as job_id,
                        coalesce(s.fire_at, date_trunc('second', moment) + make_interval(secs => s.every::float8))
                            as fire_at) as w
        where s.xact = new.xact and s.turn >= new.turn and s.kind <> 'IMMEDIATE'
        order by s.turn
        returning next_fire_at
    )
    select min(next_fire_at) into soonest from inserted;

    delete from mainspring.submissions where xact = new.xact and turn >= new.turn;
    if born is not null then
        perform pg_notify('mainspring', 'sql ready ' || born);
    end if;
    if soonest < moment + interval '5 seconds' then
        perform pg_notify('mainspring', 'sql due -');
    end if;
    return null;
end $$;

create constraint trigger submissions_stored after insert on mainspring.submissions
    deferrable initially deferred for each row execute function mainspring.store_submissions();

-- Who may submit is the operator's to say; the functions run with the rights of their owner.
revoke all on all functions in schema mainspring from public;
