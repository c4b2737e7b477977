// Who changed what, newest first.
import { Link, useSearch } from "@tanstack/react-router";
import { ChoiceFilter, Filters, TextFilter } from "../../ui/Filters";
import { Page } from "../../ui/Page";
import { Changes } from "./Changes";

const FILTERS = ["who", "operation", "kind", "id"] as const;
const KINDS: [string, string][] = [
  ["job", "Jobs"], ["run", "Runs"], ["dead_letters", "Dead letters"], ["queue", "Queues"], ["limit", "Limits"], ["breaker", "Circuit breakers"],
  ["calendar", "Calendars"], ["backfill", "Backfills"], ["operation", "Operations"], ["worker", "Workers"], ["token", "Tokens"],
  ["session", "Sessions"], ["user", "People"], ["tenant", "Tenants"], ["secret", "Secrets"], ["master_key", "Master keys"], ["view", "Views"], ["source", "Sources"], ["channel", "Channels"], ["rule", "Rules"], ["sink", "Sinks"],
  ["notification", "Notifications"],
];

export function AuditPage() {
  const search = useSearch({ from: "/audit" });
  const active = FILTERS.filter((name) => search[name] !== undefined);
  return (
    <Page title="Audit" lead={<>Who changed what. Payloads and secrets are digests. Who submitted a job is said by <Link to="/jobs">the job</Link> itself.</>}>
      <Filters active={active}>
        <TextFilter name="who" value={search.who} label="Token, by name or id" />
        <TextFilter name="operation" value={search.operation} label="Operation" />
        <ChoiceFilter name="kind" value={search.kind} label="Of what" options={KINDS} />
        {search.kind === undefined ? null : <TextFilter name="id" value={search.id} label="Its id or name" />}
      </Filters>
      <Changes
        query={{ who: search.who, operation: search.operation, kind: search.kind, id: search.kind === undefined ? undefined : search.id }}
        after={search.after} filtered={active.length > 0}
      />
    </Page>
  );
}
