// An event: its payload, and what it has caused.
import { useQuery } from "@tanstack/react-query";
import { Link, useParams } from "@tanstack/react-router";
import { get } from "../../api/client";
import type { EventCause, EventView } from "../../api/schema";
import { Json } from "../../ui/Json";
import { Card, Empty, Facts, Page, Skeleton } from "../../ui/Page";
import { ProblemBox } from "../../ui/Problem";
import { type Column, Table } from "../../ui/Table";
import { Time } from "../../ui/Time";
import { shortId } from "../../lib/format";

export function EventPage() {
  const { event: id } = useParams({ from: "/events/$event" });
  const found = useQuery({
    queryKey: ["event", id],
    queryFn: ({ signal }) => get<EventView>(`/v1/events/${encodeURIComponent(id)}`, {}, signal),
    refetchInterval: (query) => (query.state.data === undefined || isSettled(query.state.data) ? 15_000 : 1000),
  });
  const event = found.data;
  if (event === undefined)
    return <Page title="Event">{found.isPending ? <Skeleton /> : <ProblemBox error={found.error} retry={() => void found.refetch()} />}</Page>;
  const causes = event.causes ?? [];
  return (
    <Page title={event.name} lead={<>An event of <Time at={event.at} />.</>}>
      <Card flush title="What it has caused">
        {causes.length > 0 ? (
          <Table label="What it has caused" columns={COLUMNS} rows={causes} rowKey={(cause) => cause.job_id} />
        ) : event.matched ? (
          <Empty title="Nothing">No job starts on this event.</Empty>
        ) : (
          <Empty title="Nothing yet">It is dealt with in a moment.</Empty>
        )}
      </Card>
      <Card title="Facts">
        <Facts
          rows={[
            ["Name", <Link key="n" to="/events" search={{ name: event.name }}>{event.name}</Link>],
            ["Key", event.key ? <Link key="k" to="/events" search={{ name: event.name, key: event.key }}>{event.key}</Link> : null],
            ["Id", <code key="i">{event.id}</code>],
            ["Emitted", <Time key="t" at={event.at} exact focusable />],
            ["Emitted by", event.created_by ?? null],
          ]}
        />
      </Card>
      <Card title="Payload">
        {event.payload === null || event.payload === undefined ? <p className="muted">The event has no payload.</p> : <Json value={event.payload} label="payload" />}
      </Card>
    </Page>
  );
}

/** Whether nothing more comes of it. */
function isSettled(event: EventView): boolean {
  return event.matched && (event.causes ?? []).every((cause) => cause.run_id || cause.reason);
}

const COLUMNS: Column<EventCause>[] = [
  {
    key: "job", head: "Job", phone: "first", grow: true,
    cell: (cause) => (
      <Link to="/jobs/$job" params={{ job: cause.job_id }}>
        {cause.job_id}
      </Link>
    ),
  },
  {
    key: "run", head: "Run",
    cell: (cause) =>
      cause.run_id ? (
        <Link to="/runs/$run" params={{ run: cause.run_id }} title={cause.run_id}>
          {shortId(cause.run_id)}
        </Link>
      ) : cause.reason ? (
        <span className="wrap">none: {cause.reason}</span>
      ) : cause.starts_by ? (
        <>starts by <Time at={cause.starts_by} /></>
      ) : (
        "still to start"
      ),
  },
];
