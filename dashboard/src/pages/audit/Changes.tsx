// The changes that a query finds, page by page.
import { Link } from "@tanstack/react-router";
import type { Query } from "../../api/client";
import type { AuditEntry, AuditList } from "../../api/schema";
import { List } from "../../ui/List";
import { Card, Empty } from "../../ui/Page";
import type { Column } from "../../ui/Table";
import { Time } from "../../ui/Time";
import { useKeyset } from "../../ui/useKeyset";
import { Difference } from "./Difference";

const TIME: Column<AuditEntry> = { key: "at", head: "When", phone: "first", cell: (entry) => <Time at={entry.at} /> };
const BY: Column<AuditEntry> = {
  key: "by", head: "Who", phone: "first",
  cell: (entry) => <span title={[entry.role, entry.address, entry.client].filter(Boolean).join(" · ")}>{entry.by}</span>,
};
const OPERATION: Column<AuditEntry> = { key: "operation", head: "Operation", cell: (entry) => <code>{entry.operation}</code> };
const WHAT: Column<AuditEntry> = { key: "what", head: "What", grow: true, cell: (entry) => <What entry={entry} /> };
const CHANGE: Column<AuditEntry> = { key: "change", head: "Before and after", grow: true, cell: (entry) => <Difference entry={entry} /> };
const FROM: Column<AuditEntry> = { key: "from", head: "From", phone: "none", room: 2, cell: (entry) => entry.address };

export function Changes({ query, after, filtered, of }: { query: Query; after?: string; filtered?: boolean; of?: string }) {
  const list = useKeyset<AuditList, AuditEntry>({
    path: "/v1/audit", query, after, rows: (body) => body.entries, next: (body) => body.next, id: (entry) => entry.entry_id, everyMs: 5000,
  });
  const columns = of === undefined ? [TIME, BY, OPERATION, WHAT, CHANGE, FROM] : [TIME, BY, OPERATION, CHANGE, FROM];
  return (
    <Card flush>
      <List
        label={of === undefined ? "Changes" : `Changes of ${of}`} list={list} after={after} rowKey={(entry) => entry.entry_id} columns={columns}
        empty={
          filtered ? (
            <Empty title="No change matches.">Clear the filters to see all changes.</Empty>
          ) : (
            <Empty title="Nothing was changed">Pauses, changed definitions, limits, tokens and cancelled runs would be here, with who did it.</Empty>
          )
        }
      />
    </Card>
  );
}

function What({ entry }: { entry: AuditEntry }) {
  if (entry.kind === "job")
    return <Link to="/jobs/$job" params={{ job: entry.id }} search={{ tab: "history" }}>{entry.id}</Link>;
  if (entry.kind === "run")
    return <Link to="/runs/$run" params={{ run: entry.id }}>run {entry.id}</Link>;
  return (
    <Link to="/audit" search={{ kind: entry.kind, id: entry.id || undefined }}>
      {entry.kind.replaceAll("_", " ")} {entry.id}
    </Link>
  );
}
