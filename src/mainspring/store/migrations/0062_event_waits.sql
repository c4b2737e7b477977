-- stage: pre

-- The first event of a name and a key since a time: what a step that waits for one has missed, or continues with.
create index events_by_time on mainspring.events (tenant_id, name, key, at);
