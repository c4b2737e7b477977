import { useSearch } from "@tanstack/react-router";
import type { RunListRow, RunRows } from "../../api/schema";
import { ChoiceFilter, Filters, TextFilter } from "../../ui/Filters";
import { List } from "../../ui/List";
import { Card, Empty, Page } from "../../ui/Page";
import { useKeyset } from "../../ui/useKeyset";
import { runColumns } from "./columns";

const STATES: [string, string][] = [
  ["pending", "Pending"], ["RUNNING", "Running"], ["SUCCESS", "Succeeded"], ["FAILED", "Failed"], ["QUEUED", "Queued"],
  ["HELD", "Held"], ["SCHEDULED", "Backing off"], ["WAITING", "Waiting"], ["CANCELLED", "Cancelled"], ["SKIPPED", "Skipped"],
];
const FILTERS = ["status", "job", "task", "queue", "error", "label", "since", "until"] as const;
const COLUMNS = runColumns({ job: true });

export function RunsPage() {
  const search = useSearch({ from: "/runs" });
  const query = { ...Object.fromEntries(FILTERS.map((name) => [name, search[name]])), view: "row" };
  const list = useKeyset<RunRows, RunListRow>({
    path: "/v1/runs", query, after: search.after, rows: (body) => body.runs, next: (body) => body.next,
    id: (run) => run.run_id, everyMs: 3000,
  });
  const active = FILTERS.filter((name) => search[name] !== undefined);
  return (
    <Page title="Runs" lead="Every firing of every job, newest first.">
      <Filters active={active}>
        <TextFilter name="job" value={search.job} label="Job id" wide />
        <ChoiceFilter name="status" value={search.status} label="State" options={STATES} />
        <TextFilter name="task" value={search.task} label="Task" />
        <TextFilter name="queue" value={search.queue} label="Queue" />
        <TextFilter name="error" value={search.error} label="Error contains" />
        <TextFilter name="label" value={search.label} label="Label key=value" />
      </Filters>
      <Card flush>
        <List
          label="Runs" list={list} after={search.after} rowKey={(run) => run.run_id} columns={COLUMNS}
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
