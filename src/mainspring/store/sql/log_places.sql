-- Where servers store logs. A server that was not seen for half a minute is gone.

-- name: note_place
-- unguarded: a server's own row.
insert into mainspring.log_places (server_id, name, kind, place, apart) values ($1, $2, $3, $4, $5)
on conflict (server_id) do update set apart = excluded.apart, seen_at = (select clock_timestamp())

-- name: live_places
select server_id, name, kind, place from mainspring.log_places
where seen_at > (select clock_timestamp()) - interval '30 seconds'
order by name

-- name: known_places
select server_id from mainspring.log_places

-- name: forget_place
-- unguarded: a server's own row, or one that has been silent for a day.
delete from mainspring.log_places
where server_id = $1 or seen_at < (select clock_timestamp()) - interval '1 day'

-- name: apart
select p.name, o.name
from mainspring.log_places p
join mainspring.log_places o on o.name = any (p.apart)
where p.seen_at > (select clock_timestamp()) - interval '30 seconds'
  and o.seen_at > (select clock_timestamp()) - interval '30 seconds'
