-- mainspring.emit(jsonb): emits an event in the caller's transaction. The guide is docs/events.md.

-- Takes the body of POST /v1/events and returns the id of the event. What it writes is part of the caller's transaction.
create or replace function mainspring.emit(event jsonb) returns text
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
    tenant constant int := mainspring.caller_tenant();
    given jsonb;
    chosen text;
begin
    if event is null then
        perform mainspring.intake_refuse('the event is null', '$', 'such as {"name": "order.paid"}');
    end if;
    given := mainspring.intake_members(event, '', array['name', 'key', 'id', 'payload'], array[]::text[]);
    perform mainspring.intake_line(given -> 'name', 'name', 1, 200);
    perform mainspring.intake_line(given -> 'key', 'key', 0, 200);
    perform mainspring.intake_line(given -> 'id', 'id', 1, 200);
    if coalesce(trim(given ->> 'name'), '') = '' then
        perform mainspring.intake_refuse('the event has no name', 'name', 'such as {"name": "order.paid"}');
    elsif coalesce(jsonb_typeof(given -> 'payload'), 'null') not in ('object', 'null') then
        perform mainspring.intake_refuse('the payload is not an object', 'payload', 'such as {"a": 1}');
    elsif octet_length((given -> 'payload')::text) > {{MAX_PAYLOAD}} then
        perform mainspring.intake_refuse(format('the payload has %s bytes', octet_length((given -> 'payload')::text)),
            'payload', 'give at most {{MAX_PAYLOAD}} bytes: store it elsewhere and send a reference');
    end if;
    chosen := coalesce(given ->> 'id', mainspring.new_id()::text);
    with stored as (
        insert into mainspring.events (tenant_id, event_id, name, key, payload, matched)
        values (tenant, chosen, given ->> 'name', coalesce(given ->> 'key', ''),
                (given -> 'payload')::text::json, true)
        on conflict do nothing
        returning events.seq, events.tenant_id, events.event_id
    )
    insert into mainspring.unmatched_events (seq, tenant_id, event_id)
    select s.seq, s.tenant_id, s.event_id from stored s;
    return chosen;
end $$;
