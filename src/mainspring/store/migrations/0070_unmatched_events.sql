-- stage: pre

-- Events that nobody has matched yet. A row is inserted with its event and deleted when that is matched, which costs less
-- than a change of the event: that would be in all of its indexes again. `events.matched` is false only of events that
-- servers of before have stored, and which are matched by it.
create table mainspring.unmatched_events (
    seq       bigint primary key,
    tenant_id int not null,
    event_id  text not null
);
