import { useSearch } from "@tanstack/react-router";
import { BulkBar } from "../../bulk/BulkBar";
import { useSelection } from "../../bulk/useSelection";
import { useTotal } from "../../bulk/useTotal";
import type { RunListRow, RunRows } from "../../api/schema";
import { useMay } from "../../api/session";
import { shortId } from "../../lib/format";
import { ChoiceFilter, Filters, TextFilter } from "../../ui/Filters";
import { List } from "../../ui/List";
import { Card, Empty, Page } from "../../ui/Page";
import { TimeRange, useRange } from "../../ui/TimeRange";
import { useKeyset } from "../../ui/useKeyset";
import { SavedViews, useViewColumns } from "../../views/SavedViews";
import { runColumns } from "./columns";

const STATES: [string, string][] = [
  ["pending", "Pending"], ["RUNNING", "Running"], ["SUCCESS", "Succeeded"], ["FAILED", "Failed"], ["QUEUED", "Queued"],
  ["HELD", "Held"], ["SCHEDULED", "Backing off"], ["WAITING", "Waiting"], ["CANCELLED", "Cancelled"], ["SKIPPED", "Skipped"],
];
const FILTERS = ["status", "job", "task", "queue", "worker", "error", "label", "created_by"] as const;
const ACTIVE = [...FILTERS, "payload"] as const;
const RANGE = ["w", "since", "until"] as const;
const COLUMNS = runColumns({ job: true });
const idOf = (run: RunListRow): string => run.run_id;
const nameOf = (run: RunListRow): string => `${run.name} ${shortId(run.run_id)}`;

/** The filter `account=42` as a parameter: a key of the payload that the job or its task declares with `search`. */
function payloadKey(text: string | undefined): Record<string, string> {
  const [key, ...value] = (text ?? "").split("=");
  return text === undefined || key === "" ? {} : { [`payload.${key}`]: value.join("=") };
}

export function RunsPage() {
  const search = useSearch({ from: "/runs" });
  const range = useRange(search);
  const query = { ...Object.fromEntries(FILTERS.map((name) => [name, search[name]])), ...payloadKey(search.payload), ...range };
  const list = useKeyset<RunRows, RunListRow>({
    path: "/v1/runs", query: { ...query, view: "row" }, after: search.after, rows: (body) => body.runs, next: (body) => body.next,
    id: (run) => run.run_id, everyMs: 3000,
  });
  const total = useTotal("runs", query, list, search.after);
  const mayAct = useMay("runs.act");
  const selection = useSelection(list.rows, query, idOf, nameOf);
  const columns = useViewColumns("runs", search.view, COLUMNS);
  const active = [...ACTIVE, ...RANGE, "view" as const].filter((name) => search[name] !== undefined);
  return (
    <Page title="Runs" lead="Every firing of every job, newest first.">
      <SavedViews list="runs" names={[...ACTIVE, ...RANGE]} search={search} columns={COLUMNS} />
      <TimeRange search={search} />
      <Filters active={active}>
        <TextFilter name="job" value={search.job} label="Job id" wide />
        <ChoiceFilter name="status" value={search.status} label="State" options={STATES} />
        <TextFilter name="task" value={search.task} label="Task" />
        <TextFilter name="queue" value={search.queue} label="Queue" />
        <TextFilter name="error" value={search.error} label="Error contains" />
        {search.worker === undefined ? null : <TextFilter name="worker" value={search.worker} label="Worker id" />}
        <TextFilter name="label" value={search.label} label="Label, key=value" />
        <TextFilter name="created_by" value={search.created_by} label="Created by" />
        <TextFilter name="payload" value={search.payload} label="Payload, key=value" />
      </Filters>
      <BulkBar target="runs" selection={selection} filter={query} id={idOf} name={nameOf} />
      <Card flush>
        <List
          label="Runs" list={list} after={search.after} total={total} rowKey={idOf} marked={selection.has}
          columns={[...(mayAct ? [selection.column] : []), ...columns]}
          empty={
            active.length > 0 ? (
              <Empty title="No run matches.">Clear the filters to see all runs.</Empty>
            ) : (
              <Empty title="Nothing has run yet" command={"mainspring submit --command 'echo hello' --wait"}>
                Submit a first job. It runs at once:
              </Empty>
            )
          }
        />
      </Card>
    </Page>
  );
}
