-- Fields of a job that is submitted in SQL: how each type of value is read and refused. Which field has which type, words and
-- bounds is filled in from the table of fields (store/submit_fields.py).

create or replace function mainspring.intake_refuse(message text, field text, hint text) returns void
language plpgsql as $$
begin
    raise exception using errcode = 'invalid_parameter_value', message = message, detail = field, hint = hint;
end $$;

create or replace function mainspring.intake_shown(value jsonb) returns text
language sql immutable as $$
    select case when length(value::text) <= 60 then value::text else left(value::text, 60) || '...' end
$$;

-- Checks the names of an object's members, and returns those that are not null.
create or replace function mainspring.intake_members(value jsonb, field text, known text[], elsewhere text[]) returns jsonb
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
create or replace function mainspring.intake_line(value jsonb, field text, lowest int, most int) returns text
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

-- A text of several lines.
create or replace function mainspring.intake_prose(value jsonb, field text, most int) returns text
language plpgsql strict as $$
begin
    if jsonb_typeof(value) <> 'string' or length(value #>> '{}') > most then
        perform mainspring.intake_refuse(field || ' is not a string, or is too long', field,
            format('give at most %s characters', most));
    end if;
    return value #>> '{}';
end $$;

-- One of a few words, in any case. `elsewhere`: the words that are taken over HTTP only.
create or replace function mainspring.intake_word(value jsonb, field text, words text[], elsewhere text[]) returns text
language plpgsql strict as $$
declare
    word text := lower(value #>> '{}');
begin
    if jsonb_typeof(value) <> 'string' or word <> all (words || elsewhere) then
        perform mainspring.intake_refuse(mainspring.intake_shown(value) || ' is unknown', field,
            'choose one of ' || array_to_string(words, ', '));
    elsif word = any (elsewhere) then
        perform mainspring.intake_refuse(format('%s %s cannot be given in SQL', field, word), field,
            format('use %s, or submit this job over HTTP: POST /v1/jobs', array_to_string(words, ', ')));
    end if;
    return word;
end $$;

-- A level: one of these words, or its number from 0 on.
create or replace function mainspring.intake_level(value jsonb, field text, words text[]) returns int
language plpgsql strict as $$
declare
    word text := lower(value #>> '{}');
    numbers text[] := array(select (i - 1)::text from generate_subscripts(words, 1) as i);
begin
    if jsonb_typeof(value) not in ('string', 'number') or word <> all (words || numbers) then
        perform mainspring.intake_refuse(mainspring.intake_shown(value) || ' is unknown', field,
            format('choose one of %s, or 0 to %s', array_to_string(words, ', '), cardinality(words) - 1));
    end if;
    return coalesce(array_position(words, word), array_position(numbers, word)) - 1;
end $$;

-- A number, such as a share.
create or replace function mainspring.intake_number(value jsonb, field text, lowest numeric, most numeric) returns numeric
language plpgsql strict as $$
begin
    if jsonb_typeof(value) <> 'number' or value::numeric not between lowest and most then
        perform mainspring.intake_refuse(mainspring.intake_shown(value) || ' is out of range', field,
            format('give a number from %s to %s', lowest, most));
    end if;
    return value::numeric;
end $$;

create or replace function mainspring.intake_whole(value jsonb, field text, lowest int, most int) returns int
language plpgsql strict as $$
begin
    if jsonb_typeof(value) <> 'number' or value::text !~ '^-?[0-9]+$' or value::numeric not between lowest and most then
        perform mainspring.intake_refuse(mainspring.intake_shown(value) || ' is out of range', field,
            format('give a whole number from %s to %s', lowest, most));
    end if;
    return value::int;
end $$;

-- Up to how many bytes a payload is kept: true, false, a size such as "64KiB", or a number of bytes.
create or replace function mainspring.intake_kept(value jsonb, field text) returns int
language plpgsql strict as $$
declare
    parts text[] := regexp_match(btrim(value #>> '{}', E' \t\n\r\f\x0b'),
                                 '^([0-9]{1,19}(?:\.[0-9]{1,9})?)\s*(?:([kmgt])(i?))?b?$', 'i');
    size numeric;
begin
    if jsonb_typeof(value) = 'boolean' then
        return case when value = 'true' then {{MAX_PAYLOAD}} else 0 end;
    elsif jsonb_typeof(value) = 'number' and value::text ~ '^-?[0-9]+$' then
        size := value::numeric;
    elsif jsonb_typeof(value) = 'string' and parts is not null then
        size := trunc(parts[1]::numeric * (case when parts[3] <> '' then 1024 else 1000 end)
                      ^ coalesce(position(lower(parts[2]) in 'kmgt'), 0));
    end if;
    if size is null or size not between 0 and {{MAX_PAYLOAD}} then
        perform mainspring.intake_refuse(mainspring.intake_shown(value)
            || case when size is null then ' is not a size' else ' is out of range' end, field,
            'write true, false, a size up to "256KiB", or a number of bytes');
    end if;
    return size;
end $$;

-- Durations: "90s", "15m", "1h30m", or a number of seconds.
create or replace function mainspring.intake_seconds(value jsonb, field text, lowest numeric, most numeric) returns numeric
language plpgsql strict as $$
declare
    words text := lower(btrim(value #>> '{}', E' \t\n\r\f\x0b'));
    seconds numeric;
begin
    if jsonb_typeof(value) = 'number' then
        seconds := value::numeric;
    elsif jsonb_typeof(value) = 'string' and length(words) <= 400 then
        if words ~ '^([0-9]+(\.[0-9]+)?(ms|s|m|h|d|w|y))+$' then
            select sum(part[1]::numeric * case part[3] when 'ms' then 0.001 when 's' then 1 when 'm' then 60
                       when 'h' then 3600 when 'd' then 86400 when 'w' then 604800
                       else 31536000 end) into seconds
            from regexp_matches(words, '([0-9]+(\.[0-9]+)?)(ms|s|m|h|d|w|y)', 'g') as part;
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

-- A time, as UTC.
create or replace function mainspring.intake_moment(value jsonb, field text) returns text
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
            -- Python truncates to microseconds; a cast would round.
            moment := regexp_replace(words, '(\.[0-9]{6})[0-9]+', '\1')::timestamptz;
        exception when data_exception then
            moment := null;
        end;
    end if;
    if moment is null or extract(year from moment at time zone 'UTC') not between 1900 and 9998 then
        perform mainspring.intake_refuse(mainspring.intake_shown(value) || ' is not a time', field,
            'write RFC 3339, such as "2026-12-31T23:59:59Z"');
    end if;
    return to_char(moment at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"');
end $$;

-- Names and texts.
create or replace function mainspring.intake_pairs(value jsonb, field text, shortest int, most int) returns jsonb
language plpgsql strict as $$
declare
    pair record;
begin
    if jsonb_typeof(value) <> 'object' then
        perform mainspring.intake_refuse(field || ' is not an object', field, 'such as {"team": "bi"}');
    end if;
    if (select count(*) from jsonb_object_keys(value)) > most then
        perform mainspring.intake_refuse('too many labels', field, format('give at most %s', most));
    end if;
    for pair in select * from jsonb_each(value) loop
        perform mainspring.intake_line(to_jsonb(pair.key), field, 1, 200);
        perform mainspring.intake_line(pair.value, field, shortest, 200);
    end loop;
    return value;
end $$;

-- Sorted and written as by the servers, because lanes are found by this text.
create or replace function mainspring.labels_text(labels jsonb) returns text
language plpgsql immutable strict as $$
begin
    return (select '{' || string_agg(to_json(l.key)::text || ':' || to_json(l.value)::text, ','
                                     order by l.key collate "C") || '}'
            from jsonb_each_text(labels) as l);
end $$;

-- A command: text, or a list of texts.
create or replace function mainspring.intake_command(value jsonb, field text) returns jsonb
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

-- Checks the fields of a job one by one, and returns those that are given, as they are stored.
create or replace function mainspring.intake_values(job jsonb) returns jsonb
language plpgsql as $$
declare
    found jsonb := jsonb_strip_nulls({{SUBMIT_VALUES}});
    members jsonb;
begin
    {{SUBMIT_OBJECTS}}
    return found;
end $$;
