// What applications have emitted, newest first.
import { Link, useSearch } from "@tanstack/react-router";
import type { EventList, EventRow } from "../../api/schema";
import { count } from "../../lib/format";
import { Filters, TextFilter } from "../../ui/Filters";
import { List } from "../../ui/List";
import { Card, Empty, Page } from "../../ui/Page";
import type { Column } from "../../ui/Table";
import { Time } from "../../ui/Time";
import { useKeyset } from "../../ui/useKeyset";

const keyOf = (event: EventRow): string => event.id;

export function EventsPage() {
  const search = useSearch({ from: "/events" });
  const { name } = search;
  const key = name === undefined ? undefined : search.key; // the server finds a key of a name
  const list = useKeyset<EventList, EventRow>({
    path: "/v1/events", query: { name, key }, after: search.after, rows: (body) => body.events, next: (body) => body.next, id: keyOf,
  });
  const active = (["name", "key"] as const).filter((one) => search[one] !== undefined);
  return (
    <Page title="Events" lead={<>What applications say has happened. Jobs and workflows start on events. Some come from <Link to="/sources">sources</Link>.</>}>
      <Filters active={active}>
        <TextFilter name="name" value={name} label="Name" wide />
        {name === undefined ? null : <TextFilter name="key" value={search.key} label="Key" />}
      </Filters>
      <Card flush>
        <List
          label="Events" list={list} after={search.after} rowKey={keyOf} columns={COLUMNS}
          empty={
            active.length > 0 ? (
              <Empty title="No event matches.">Name and key are compared as a whole.</Empty>
            ) : (
              <Empty title="No events yet" command="mainspring emit order.paid --key 42">
                Applications emit them by HTTP, from code, or in a transaction of their own. Emit one with:
              </Empty>
            )
          }
        />
      </Card>
    </Page>
  );
}

const COLUMNS: Column<EventRow>[] = [
  {
    key: "name", head: "Event", phone: "first", grow: true,
    cell: (event) => (
      <Link to="/events/$event" params={{ event: event.id }} title={event.id}>
        {event.name}
      </Link>
    ),
  },
  { key: "key", head: "Key", cut: true, cell: (event) => event.key ?? "" },
  { key: "at", head: "Emitted", cell: (event) => <Time at={event.at} /> },
  { key: "caused", head: "Started", align: "end", cell: (event) => <><span className="onPhone">started </span>{event.matched ? count(event.caused ?? 0) : "–"}</> },
  { key: "id", head: "Id", phone: "none", cut: true, room: 1, cell: (event) => <code>{event.id}</code> },
];
