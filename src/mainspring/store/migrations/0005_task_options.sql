-- mainspring.submit(jsonb) gives a job the options of its task where the job says nothing. The rule is that of the
-- servers (domain/task_options.py); they put options in plain numbers and words before they store them.

comment on column mainspring.task_signatures.schema is
    'JSON Schema of the payload; under x-mainspring-options the options that the task declares for its jobs';

-- `given` with options laid under it. What a job in SQL cannot say itself is in `beyond`, in the words of a stored
-- spec, with the rules of the retry apart.
create function mainspring.intake_options(given jsonb, options jsonb, out filled jsonb, out beyond jsonb)
language plpgsql immutable as $$
declare
    retry jsonb := (options -> 'retry') - 'rules';
begin
    filled := jsonb_strip_nulls(jsonb_build_object('queue', options -> 'queue', 'priority', options -> 'priority',
        'timeout', options -> 'timeout', 'delivery', options -> 'delivery')) || given;
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
        'run_timeout', options -> 'run_timeout',
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

revoke all on function mainspring.intake_options(jsonb, jsonb), mainspring.intake_beyond(jsonb, jsonb) from public;

-- As in 0003_submit.sql, but for the options and what lies beyond.
create or replace function mainspring.submit(job jsonb) returns text
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
    tenant constant int := 1;
    known constant text[] := array['job_id', 'name', 'task', 'job_type', 'command', 'payload', 'schedule',
        'schedule_type', 'schedule_time', 'queue', 'priority', 'timeout', 'required_labels', 'retry', 'retries',
        'max_retries', 'misfire', 'overlap', 'delivery', 'idempotency_key', 'owner', 'description', 'labels'];
    elsewhere constant text[] := array['http', 'cron_expression', 'timezone', 'run_timeout', 'kill_grace', 'env',
        'limits', 'sandbox', 'depends_on', 'dependencies', 'notify', 'concurrency', 'rate_limit', 'circuit_breaker'];
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
    options := (select (s.schema -> 'x-mainspring-options')::jsonb from mainspring.task_signatures s
                where s.tenant_id = tenant and s.task = what.task);
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
