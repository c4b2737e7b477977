-- The options that a task declares for its jobs, applied to a job that is submitted in SQL.

-- Adds the options of the task to `given`, which is checked, where it does not set them, like the servers
-- (domain/intake/task_options.py), which store options as plain numbers and words. `beyond` contains the options that
-- cannot be given in SQL, in the form of a stored spec, with the retry rules apart.
create or replace function mainspring.intake_options(given jsonb, options jsonb, out filled jsonb, out beyond jsonb)
language plpgsql immutable as $$
declare
    retry jsonb := (options -> 'retry') - 'rules';
    name text;
begin
    filled := jsonb_strip_nulls({{SUBMIT_OPTION_MEMBERS}}) || given;
    if given ?| array['retries', 'max_retries'] or given ->> 'delivery' = 'at_most_once' then
        retry := retry - 'max_attempts'; -- the job sets it
    end if;
    if retry is not null then
        filled := filled || jsonb_build_object('retry', retry || coalesce(given -> 'retry', '{}'));
    end if;
    foreach name in array {{SUBMIT_OPTIONS_BY_NAME}} loop
        if jsonb_typeof(options -> name) = 'object' then
            filled := filled || jsonb_build_object(name, (options -> name) || coalesce(given -> name, '{}'));
        end if;
    end loop;
    beyond := nullif(jsonb_strip_nulls(jsonb_build_object(
        'setup', nullif(jsonb_strip_nulls({{SUBMIT_SETUP_OPTIONS}}), '{}'),
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
