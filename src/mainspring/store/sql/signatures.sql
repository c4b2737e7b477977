-- The payload schemas of tasks: the JSON Schema that the newest registered worker declares, including the options of
-- the task. The declaration of a shared worker (tenant 0) applies to tenants that have no declaration of their own.

-- name: declare
-- Only changed rows: an upsert would lock each row at every hello, and after an outage all workers send it at once.
-- unguarded: the last hello applies.
insert into mainspring.task_signatures (tenant_id, task, schema, registered_at)
select $1, u.task, u.schema, t.now
from unnest($2::text[], $3::json[]) as u (task, schema), (select clock_timestamp() as now) as t
where not exists (select from mainspring.task_signatures s
                  where s.tenant_id = $1 and s.task = u.task and s.schema::text = u.schema::text)
order by u.task
on conflict (tenant_id, task) do update set schema = excluded.schema, registered_at = excluded.registered_at
returning task

-- name: differs
-- Whether `declare` or `withdraw` would change something. Most hellos say what is known, and a read waits for nobody.
select exists (select from unnest($2::text[], $3::text[]) as u (task, schema)
               where not exists (select from mainspring.task_signatures s
                                 where s.tenant_id = $1 and s.task = u.task and s.schema::text = u.schema))
    or exists (select from mainspring.task_signatures s where s.tenant_id = $1 and s.task = any ($4::text[]))

-- name: withdraw
-- Tasks that take any payload now.
-- unguarded: as above.
delete from mainspring.task_signatures where tenant_id = $1 and task = any ($2::text[]) returning task

-- name: drop_excess
-- Keep the newest $2 signatures of a tenant, and of these as many as have $3 bytes together. Rows that another hello
-- holds are left to that one.
-- unguarded: the same rule applies to whoever drops them; a task without a signature takes any payload.
with ranked as (
    select task, row_number() over newest as place, sum(octet_length(schema::text)) over newest as bytes
    from mainspring.task_signatures
    where tenant_id = $1
    window newest as (order by registered_at desc, task)
), excess as materialized (
    select s.task
    from mainspring.task_signatures s
    join ranked r on r.task = s.task
    where s.tenant_id = $1 and (r.place > $2 or r.bytes > $3)
    order by s.task
    for update of s skip locked
)
delete from mainspring.task_signatures s using excess e where s.tenant_id = $1 and s.task = e.task returning s.task

-- name: versions
-- This is small, and is read every two seconds. A change has another time.
select tenant_id, task, registered_at from mainspring.task_signatures

-- name: schemas
select s.tenant_id, s.task, s.registered_at, s.schema::text as schema_text
from mainspring.task_signatures s
join unnest($1::int[], $2::text[]) as u (tenant_id, task) using (tenant_id, task)

-- name: offered
-- Tasks of live workers, with the queues and the number of these workers, and the schema of the payload. The first $2
-- bytes of schemas are read, and 100 queues of each task. Many workers are alike, so these are counted before their tasks
-- are listed.
with kinds as materialized (
    select tasks, queues, count(*) as workers
    from mainspring.workers
    where tenant_id in ($1, {{EVERY_TENANT}}) and state in ({{WORKERS_ALIVE}}) and cardinality(queues) > 0
    group by tasks, queues
)
select w.task, w.queues, w.workers,
       case when sum(octet_length(s.schema::text)) over (order by w.task) <= $2 then s.schema::text end as schema_text,
       coalesce(sum(octet_length(s.schema::text)) over (order by w.task) > $2, false) and s.schema is not null as left_out
from (
    select c.task, c.workers, q.queues
    from (select t.task, sum(k.workers)::bigint as workers
          from kinds k cross join lateral (select distinct unnest(k.tasks) as task) as t
          group by t.task) as c
    join (select task, (array_agg(distinct queue order by queue))[1:100] as queues
          from kinds, unnest(tasks) as task, unnest(queues) as queue
          group by task) as q on q.task = c.task
) as w
left join lateral (
    select schema from mainspring.task_signatures where tenant_id in ($1, {{EVERY_TENANT}}) and task = w.task
    order by tenant_id desc
    limit 1
) as s on true
order by w.task
limit $3
