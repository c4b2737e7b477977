-- Ids and shards, as the servers compute them.

-- UUIDv7: 48 bits of milliseconds, and random bits.
create or replace function mainspring.new_id() returns uuid
language sql volatile as $$
    select encode(set_bit(set_bit(
        overlay(uuid_send(gen_random_uuid()) placing substring(int8send(milliseconds) from 3) from 1 for 6),
        52, 1), 53, 1), 'hex')::uuid
    from (select floor(extract(epoch from (select clock_timestamp())) * 1000)::bigint as milliseconds) as t
$$;

-- The shard of a job, as the servers compute it: CRC-32 of "tenant/job_id", modulo 128.
create or replace function mainspring.shard_of(tenant int, job text) returns smallint
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

-- Whether this id was generated for another job. Generated ids are not in taken_ids.
create or replace function mainspring.made_here(tenant int, job text) returns boolean
language sql stable as $$
    select case when job ~* '^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$' then
        exists (select from mainspring.jobs j where j.tenant_id = tenant and j.job_id = job)
        or exists (select from mainspring.runs r
                   where r.tenant_id = tenant and r.run_id = job::uuid and r.job_id is null)
        or exists (select from mainspring.run_history h
                   where h.tenant_id = tenant and h.run_id = job::uuid and h.job_id is null)
    else false end
$$;

-- Refuses a job_id.
create or replace function mainspring.refuse_id(what text, instead text) returns void
language plpgsql as $$
begin
    raise exception using errcode = 'unique_violation', detail = 'job_id', message = what, hint = instead;
end $$;

-- Begins a new generation of an id that was taken before, if its job has ended. Id and job stay locked until the end of
-- the transaction, at which the job is stored. So an earlier submission of this transaction is not there yet.
create or replace function mainspring.next_generation(tenant int, job text) returns int
language plpgsql as $$
declare
    status smallint;
    live uuid;
    generation int;
begin
    perform from mainspring.taken_ids t where t.tenant_id = tenant and t.job_id = job for update;
    if exists (select from mainspring.submissions s
               where s.xact = pg_current_xact_id() and s.tenant_id = tenant and s.job_id = job) then
        perform mainspring.refuse_id(format('this transaction has submitted a job called %L already', job),
            'choose another job_id');
    end if;
    select j.status into status from mainspring.jobs j
    where j.tenant_id = tenant and j.job_id = job for no key update;
    select r.run_id into live from mainspring.runs r where r.tenant_id = tenant and r.job_id = job limit 1;
    if status not in ({{JOBS_ENDED}}) then
        perform mainspring.refuse_id(format('a job called %L exists already', job),
            'change it or cancel it first, or choose another job_id');
    elsif live is not null then
        perform mainspring.refuse_id(format('a job called %L exists already, and its run %s has not ended', job, live),
            'wait for its end, or cancel it first, or choose another job_id');
    end if;
    update mainspring.taken_ids t set generation = t.generation + 1, taken_at = (select clock_timestamp())
    where t.tenant_id = tenant and t.job_id = job
    returning t.generation into generation;
    if not found then
        insert into mainspring.taken_ids as t (tenant_id, job_id) values (tenant, job) returning t.generation into generation;
    end if;
    return generation;
end $$;
