-- Day partitions. Servers may have a role that does not own the tables, so these run as the owner.

-- The name of a day partition. Only the tables with history and logs have any.
create or replace function mainspring.partition_name(parent text, day date) returns text
language plpgsql immutable strict as $$
begin
    if parent not in ('run_history', 'attempts', 'log_chunks') then
        raise exception 'mainspring.% has no day partitions', parent using errcode = 'invalid_parameter_value';
    end if;
    return parent || '_' || to_char(day, 'YYYYMMDD');
end $$;

-- Creates the partition of a day near today and attaches it. Returns false if it exists. It waits for another process
-- that creates partitions, but only briefly for a lock on the table.
create or replace function mainspring.add_partition(parent text, day date) returns boolean
language plpgsql volatile strict security definer set search_path = pg_catalog, pg_temp set lock_timeout = 0 as $$
declare
    name constant text := mainspring.partition_name(parent, day);
    today constant date := ((select clock_timestamp()) at time zone 'UTC')::date;
    low constant timestamptz := day::timestamp at time zone 'UTC';
    high constant timestamptz := (day + 1)::timestamp at time zone 'UTC';
    key constant text := case parent when 'log_chunks' then 'stored_at' else 'ended_at' end;
begin
    if day not between today - 2 and today + 30 then
        raise exception '% is too far from today', day using errcode = 'invalid_parameter_value';
    end if;
    perform pg_advisory_xact_lock({{lock_key(parent)}});
    perform set_config('lock_timeout', '2s', true);
    if to_regclass('mainspring.' || name) is not null then
        return false;
    end if;
    execute format(
        'create table mainspring.%I (like mainspring.%I including defaults including constraints including storage)',
        name, parent);
    -- With this constraint ATTACH needs no scan of the table. It is dropped afterwards.
    execute format('alter table mainspring.%I add constraint bounds check (%I >= %L and %I < %L)',
        name, key, low, key, high);
    execute format('alter table mainspring.%I attach partition mainspring.%I for values from (%L) to (%L)',
        parent, name, low, high);
    execute format('alter table mainspring.%I drop constraint bounds', name);
    return true;
end $$;

-- Drops the partition of a past day. The owner of the table detaches it concurrently first, which no function can do.
create or replace function mainspring.drop_partition(parent text, day date) returns void
language plpgsql volatile strict security definer set search_path = pg_catalog, pg_temp set lock_timeout = '2s' as $$
begin
    if day >= ((select clock_timestamp()) at time zone 'UTC')::date then
        raise exception '% is not over', day using errcode = 'invalid_parameter_value';
    end if;
    execute format('drop table mainspring.%I', mainspring.partition_name(parent, day));
end $$;
