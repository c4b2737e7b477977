// What connectors read from brokers: where each source is, how many messages wait, and what fails.
import { Link, useSearch } from "@tanstack/react-router";
import type { SourceList, SourceView } from "../../api/schema";
import { count } from "../../lib/format";
import { List } from "../../ui/List";
import { Card, Empty, Page } from "../../ui/Page";
import type { Column } from "../../ui/Table";
import { Time } from "../../ui/Time";
import { useKeyset } from "../../ui/useKeyset";

const keyOf = (source: SourceView): string => `${source.name} ${source.partition ?? ""}`;

export function SourcesPage() {
  const search = useSearch({ from: "/sources" });
  const list = useKeyset<SourceList, SourceView>({
    path: "/v1/sources", query: {}, after: search.after, rows: (body) => body.sources, next: (body) => body.next, id: keyOf,
  });
  return (
    <Page title="Sources" lead={<>What connectors read from brokers. It becomes <Link to="/events">events</Link> and jobs.</>}>
      <Card flush>
        <List
          label="Sources" list={list} after={search.after} rowKey={keyOf} columns={COLUMNS}
          empty={
            <Empty title="No sources yet" command="mainspring connect --sources connect.yaml">
              A connector reads Kafka, NATS JetStream, RabbitMQ or Redis streams. Start one with:
            </Empty>
          }
        />
      </Card>
    </Page>
  );
}

const COLUMNS: Column<SourceView>[] = [
  {
    key: "name", head: "Source", phone: "first", grow: true,
    cell: (source) => <>{source.name} <small>{source.partition || source.kind}</small></>,
  },
  { key: "taken", head: "Taken", align: "end", cell: (source) => <><span className="onPhone">taken </span>{count(source.taken)}</> },
  { key: "dead", head: "Dead", align: "end", cell: (source) => <><span className="onPhone">dead </span>{count(source.dead)}</> },
  { key: "lag", head: "Waiting", align: "end", cell: (source) => <><span className="onPhone">waiting </span>{source.lag == null ? "–" : count(source.lag)}</> },
  { key: "offset", head: "Offset", align: "end", phone: "none", room: 1, cell: (source) => source.offset ?? "" },
  { key: "seen", head: "Seen", cell: (source) => <Time at={source.seen_at} /> },
  { key: "problem", head: "Problem", cut: true, cell: (source) => source.problem ?? "" },
];
