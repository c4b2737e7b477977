-- Messages: those to send, those that were sent, and those that were given up.

-- name: insert_notification
-- unguarded: append-only.
insert into mainspring.notifications (notification_id, tenant_id, channel, rule, state, next_at, title, message)
values ($1, $2, $3, $4, {{MESSAGE_PENDING}}, (select clock_timestamp()), $5, $6::json)

-- name: insert_ended
-- A message that is not sent again by itself: a test, or one to a channel that is gone. $4: why it was not sent.
-- unguarded: append-only.
insert into mainspring.notifications
    (notification_id, tenant_id, channel, state, attempts, next_at, ended_at, error, title, message)
values ($1, $2, $3, case when $4::text is null then {{MESSAGE_SENT}} else {{MESSAGE_DEAD}} end, 1,
        (select clock_timestamp()), (select clock_timestamp()), $4, $5, $6::json)

-- name: claim_due
-- The oldest due messages of each channel, $3 at most of each, except of the channels ($1, $2), of which this process
-- sends enough. $4: for so many seconds no other process sends them. $5: the most of a tenant, of which this process sends
-- ($6, $7) already.
-- guard: state and next_at, under the row's lock; attempts is the fence of the sender.
with due as materialized (
    select n.notification_id, c.tenant_id, row_number() over (partition by c.tenant_id order by n.next_at) as place
    from mainspring.channels c
    cross join lateral (
        select m.notification_id, m.next_at
        from mainspring.notifications m
        where m.tenant_id = c.tenant_id and m.channel = c.name and m.state = {{MESSAGE_PENDING}}
          and m.next_at <= (select clock_timestamp())
        order by m.next_at
        limit $3
        for no key update skip locked) as n
    where not exists (select from unnest($1::int[], $2::text[]) as busy (tenant_id, name)
                      where busy.tenant_id = c.tenant_id and busy.name = c.name)
)
update mainspring.notifications n
set attempts = n.attempts + 1, next_at = (select clock_timestamp()) + $4 * interval '1 second'
from due
where n.notification_id = due.notification_id and n.state = {{MESSAGE_PENDING}}
  and due.place <= $5 - coalesce((select u.number from unnest($6::int[], $7::bigint[]) as u (tenant_id, number)
                                  where u.tenant_id = due.tenant_id), 0)
returning {{notification_columns}}

-- name: renew_notifications
-- This process still sends them.
-- guard: state, attempts, which is the fence of the sender, and next_at: the end of an attempt may have set it meanwhile.
update mainspring.notifications n
set next_at = (select clock_timestamp()) + $4 * interval '1 second'
from unnest($1::uuid[], $2::int[], $3::timestamptz[]) as u (notification_id, attempts, next_at)
where n.notification_id = u.notification_id and n.attempts = u.attempts and n.next_at = u.next_at
  and n.state = {{MESSAGE_PENDING}}
returning {{notification_columns}}

-- name: has_pending
select exists (select from mainspring.notifications where state = {{MESSAGE_PENDING}}
               and next_at <= (select clock_timestamp()))

-- name: end_notification
-- $4: why it was not sent; null if it was.
-- guard: state, and attempts, which is the fence of the sender.
update mainspring.notifications
set state = case when $3 then {{MESSAGE_SENT}} else {{MESSAGE_DEAD}} end, ended_at = (select clock_timestamp()), error = $4
where notification_id = $1 and attempts = $2 and state = {{MESSAGE_PENDING}}

-- name: retry_notification
-- guard: state, and attempts, which is the fence of the sender.
update mainspring.notifications
set next_at = (select clock_timestamp()) + $3 * interval '1 second', error = $4
where notification_id = $1 and attempts = $2 and state = {{MESSAGE_PENDING}}

-- name: give_up_channel
-- The channel was deleted.
-- guard: state; the caller has locked the channel.
update mainspring.notifications
set state = {{MESSAGE_DEAD}}, ended_at = (select clock_timestamp()), error = $3
where tenant_id = $1 and channel = $2 and state = {{MESSAGE_PENDING}}

-- name: get_notification
select {{notification_columns}}
from mainspring.notifications n
where n.tenant_id = $1 and n.notification_id = $2

-- name: list_notifications
-- Newest first, before $2.
select {{notification_columns}}
from mainspring.notifications n
where n.tenant_id = $1 and ($2::uuid is null or n.notification_id < $2)
  and ($3::smallint is null or n.state = $3) and ($4::text is null or n.channel = $4) and ($5::text is null or n.rule = $5)
order by n.notification_id desc
limit $6

-- name: send_again
-- It has a whole series of attempts again: they are counted from a multiple of the longest series on.
-- guard: it has ended.
update mainspring.notifications n
set state = {{MESSAGE_PENDING}},
    attempts = ((n.attempts + {{MESSAGE_ATTEMPTS}} - 1) / {{MESSAGE_ATTEMPTS}}) * {{MESSAGE_ATTEMPTS}}, next_at = (select clock_timestamp()), ended_at = null, error = null
where n.tenant_id = $1 and n.notification_id = $2 and n.state <> {{MESSAGE_PENDING}}
returning {{notification_columns}}

-- name: acknowledge
-- guard: it is not acknowledged.
update mainspring.notifications n
set acknowledged_at = (select clock_timestamp()), acknowledged_by = $3
where n.tenant_id = $1 and n.notification_id = $2 and n.acknowledged_at is null
returning {{notification_columns}}

-- name: prune_notifications
-- unguarded: no statement changes what has ended so long ago.
delete from mainspring.notifications
where ended_at < (select clock_timestamp()) - $1 * interval '1 second' and state <> {{MESSAGE_PENDING}}
