-- Day partitions. Servers may have a role that does not own the tables, so these run as the owner.

-- The name of a day partition. Only the tables with history, logs and audit have any.
create or replace function mainspring.partition_name(parent text, day date) returns text
language plpgsql immutable strict as $$
begin
    if parent not in ('run_history', 'attempts', 'log_chunks', 'log_blocks', 'audit_entries', 'audit_links') then
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
    key constant text := case parent when 'log_chunks' then 'stored_at' when 'log_blocks' then 'stored_to'
                                     when 'audit_entries' then 'at' when 'audit_links' then 'linked_at' else 'ended_at' end;
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
    if parent like 'audit%' then
        -- Row triggers of the table hold for its partitions, those of statements do not.
        execute format('create trigger kept_whole before truncate on mainspring.%I
                        for each statement execute function mainspring.refuse_audit_change()', name);
        perform mainspring.protect_audit(array[name]);
    end if;
    return true;
end $$;

-- Drops the partition of a past day. The owner of the table detaches it concurrently first, which no function can do.
create or replace function mainspring.drop_partition(parent text, day date) returns void
language plpgsql volatile strict security definer set search_path = pg_catalog, pg_temp set lock_timeout = '2s' as $$
begin
    if day >= ((select clock_timestamp()) at time zone 'UTC')::date then
        raise exception '% is not over', day using errcode = 'invalid_parameter_value';
    end if;
    if parent like 'audit%' and day >= ((select clock_timestamp()) at time zone 'UTC')::date - {{AUDIT_LEAST_DAYS}} then
        raise exception 'the audit of the last % days is kept', {{AUDIT_LEAST_DAYS}}
            using errcode = 'invalid_parameter_value';
    end if;
    if parent = 'audit_entries' then
        insert into mainspring.audit_dropped_days (day) values (day) on conflict do nothing;
    elsif parent = 'audit_links' then
        execute format('insert into mainspring.audit_anchors (tenant_id, seq, hash)
                        select distinct on (tenant_id) tenant_id, seq, hash from mainspring.%I
                        order by tenant_id, seq desc on conflict do nothing', mainspring.partition_name(parent, day));
    end if;
    execute format('drop table mainspring.%I', mainspring.partition_name(parent, day));
end $$;
