-- The options that a task declares for its jobs, applied to a job that is submitted in SQL.

-- Adds the options of the task to `given` where it does not set them, like the servers (domain/intake/task_options.py),
-- which store options as plain numbers and words. `beyond` contains the options that cannot be given in SQL, in the
-- form of a stored spec, with the retry rules apart.
create or replace function mainspring.intake_options(given jsonb, options jsonb, out filled jsonb, out beyond jsonb)
language plpgsql immutable as $$
declare
    retry jsonb := (options -> 'retry') - 'rules';
begin
    filled := jsonb_strip_nulls(jsonb_build_object({{SUBMIT_OPTION_MEMBERS}}))
        || given;
    if given ?| array['retries', 'max_retries'] or lower(given ->> 'delivery') = 'at_most_once' then
        retry := retry - 'max_attempts'; -- the job sets it
    end if;
    -- A value that is not an object stays unchanged, and is refused later.
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

-- A spec with the options that cannot be given in SQL.
create or replace function mainspring.intake_beyond(spec jsonb, beyond jsonb) returns json
language sql immutable as $$
    select (coalesce(spec, '{}') || (beyond - 'rules') || case when beyond ? 'rules'
        then jsonb_build_object('retry', coalesce(spec -> 'retry', '{}')
                                         || jsonb_build_object('rules', beyond -> 'rules'))
        else '{}' end)::text::json
$$;
