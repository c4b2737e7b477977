import { jobPath } from "../../api/queries";
import type { RunListRow } from "../../api/schema";
import { List } from "../../ui/List";
import { Card, Empty } from "../../ui/Page";
import { useKeyset } from "../../ui/useKeyset";
import { runColumns } from "../runs/columns";

const COLUMNS = runColumns({ job: false });

export function JobRuns({ job, after }: { job: string; after: string | undefined }) {
  const list = useKeyset<RunListRow[], RunListRow>({
    path: `${jobPath(job)}/runs`, query: { view: "row" }, after, rows: (body) => body, id: (run) => run.run_id, everyMs: 3000,
  });
  return (
    <Card flush>
      <List
        label="Runs of the job" list={list} after={after} rowKey={(run) => run.run_id} columns={COLUMNS}
        empty={<Empty title="No runs yet">It has not fired. Run it now, or wait for its next fire.</Empty>}
      />
    </Card>
  );
}
