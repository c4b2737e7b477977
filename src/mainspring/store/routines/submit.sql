-- mainspring.submit(jsonb): submits a job in the caller's transaction.
-- The guide is docs/transactional-submit.md, the reasons are in docs/decisions/0012-transactional-submit.md.

-- The tenant of the caller. session_user is the role that logged in. Unlike a setting, the caller cannot choose it. A
-- role without an entry submits to the tenant `default`.
create or replace function mainspring.caller_tenant() returns int
language sql stable as $$
    select coalesce((select t.tenant_id from mainspring.tenant_roles t where t.role = session_user), 1)
$$;

-- Takes the body of POST /v1/jobs and returns the job_id. What it writes is part of the caller's transaction.
create or replace function mainspring.submit(job jsonb) returns text
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
    tenant constant int := mainspring.caller_tenant();
    known constant text[] := {{SUBMIT_KNOWN}};
    elsewhere constant text[] := {{SUBMIT_ELSEWHERE}};
    given jsonb;
    options jsonb;
    beyond jsonb;
    own_id uuid := mainspring.new_id();
    chosen text;
    once text;
    begun int := 1;  -- the generation
    digest bytea;
    before record;
    what record;
    "when" record;
    spec json;
    allowed boolean;
    limited text;
begin
    if job is null then
        perform mainspring.intake_refuse('the job is null', '$', 'such as {"task": "report.generate"}');
    end if;
    given := mainspring.intake_members(job, '', known, elsewhere);
    given := given || mainspring.intake_values(given);
    chosen := given ->> 'job_id';
    if chosen !~ '^[A-Za-z0-9._-]+$' then
        perform mainspring.intake_refuse(mainspring.intake_shown(given -> 'job_id') || ' cannot be a job_id', 'job_id',
            'use letters, digits, and . _ -');
    elsif chosen in ('.', '..') then
        perform mainspring.intake_refuse(mainspring.intake_shown(given -> 'job_id')
            || ' cannot be a job_id: clients remove the path segments . and .. from URLs', 'job_id',
            'choose another job_id');
    end if;
    if jsonb_typeof(given -> 'payload') <> 'object' then
        perform mainspring.intake_refuse('the payload is not an object', 'payload', 'such as {"a": 1}');
    elsif octet_length((given -> 'payload')::text) > {{MAX_PAYLOAD}} then
        perform mainspring.intake_refuse(format('the payload has %s bytes', octet_length((given -> 'payload')::text)),
            'payload', 'give at most {{MAX_PAYLOAD}} bytes: store it elsewhere and send a reference');
    end if;
    select * into what from mainspring.intake_task(given);
    if what.command is not null and octet_length((given -> 'payload')::text) > {{MAX_SHELL_PAYLOAD}} then
        perform mainspring.intake_refuse(format('the payload has %s bytes', octet_length((given -> 'payload')::text)),
            'payload', 'give at most {{MAX_SHELL_PAYLOAD}} bytes to a command, which has it as a variable: name a file in it instead');
    end if;
    -- If the tenant's own workers declare nothing about a task, the declaration of shared ones (tenant 0) applies.
    options := (select (s.schema -> 'x-mainspring-options')::jsonb from mainspring.task_signatures s
                where s.tenant_id in (tenant, 0) and s.task = what.task order by s.tenant_id desc limit 1);
    -- Runs with limits are admitted by the servers. This function would let them run without.
    foreach limited in array {{SUBMIT_OPTIONS_REFUSED}} loop
        if jsonb_typeof(options -> limited) <> 'null' then
            perform mainspring.intake_refuse(format('task %s declares %s, which SQL does not know', what.task, limited), 'task',
                'submit this job over HTTP: POST /v1/jobs');
        end if;
    end loop;
    if options is not null then
        select o.filled, o.beyond into given, beyond from mainspring.intake_options(given, options) as o;
        given := given || mainspring.intake_values(given);
    end if;
    given := mainspring.intake_attempts(given);
    select * into "when" from mainspring.intake_schedule(given);
    if jsonb_typeof(options -> 'delay') = 'number' and not given ?| array['schedule', 'schedule_time', 'schedule_type'] then
        "when".kind := 'FUTURE';
        "when".fire_at := (select clock_timestamp()) + (options ->> 'delay')::float8 * interval '1 second';
    end if;
    if options -> 'unique' <> 'null' and "when".kind in ('IMMEDIATE', 'FUTURE') then
        perform mainspring.intake_refuse(
            format('the task %L declares unique, which cannot be given in SQL', left(what.task, 100)), 'unique',
            'submit this job over HTTP: POST /v1/jobs');
    end if;
    spec := mainspring.stored_spec(given, what.command);
    allowed := coalesce(given ->> 'overlap' = 'allow', false);
    if allowed and "when".kind in ('IMMEDIATE', 'FUTURE') then -- see Spec in domain/job.py
        spec := (coalesce(spec::jsonb, '{}') || '{"overlap": {{SUBMIT_OVERLAP_ALLOW}}}')::text::json;
    end if;

    -- First the key, then the id, like the servers. If an open transaction holds one of them, this waits for it.
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
        if not found then
            begun := mainspring.next_generation(tenant, chosen);
            update mainspring.idempotency_keys k set generation = begun
            where k.tenant_id = tenant and k.key = once;
        elsif mainspring.made_here(tenant, chosen) then
            perform mainspring.refuse_id(format('%L was generated for another job, and such ids are not used again', chosen),
                'leave job_id out, or choose another one');
        end if;
    end if;

    insert into mainspring.submissions
        (tenant_id, run_id, job_id, queue, priority, task, labels, kind, fire_at, every, overlap, max_attempts, name,
         payload, spec)
    values (tenant, own_id, chosen,
            coalesce(given ->> 'queue', {{SUBMIT_QUEUE}}), coalesce((given -> 'priority')::int, {{SUBMIT_PRIORITY}}), what.task,
            coalesce(mainspring.labels_text(given -> 'required_labels'), ''),
            "when".kind, "when".fire_at, "when".every, allowed::int,
            (given #> '{retry,max_attempts}')::int, coalesce(given ->> 'name', chosen), (given -> 'payload')::text::json,
            case when beyond is null then spec else mainspring.intake_beyond(spec::jsonb, beyond) end);
    return coalesce(chosen, own_id::text);
end $$;
