import { useQuery } from "@tanstack/react-query";
import { get } from "../../api/client";
import { jobPath } from "../../api/queries";
import type { MissedRange } from "../../api/schema";
import { plural } from "../../lib/format";
import { Card, Empty, Skeleton } from "../../ui/Page";
import { ProblemBox } from "../../ui/Problem";
import { StateMark } from "../../ui/StateMark";
import { type Column, Table } from "../../ui/Table";
import { Time } from "../../ui/Time";
import { BackfilledBy } from "../operations/BackfilledBy";
import { MakeUp } from "../operations/MakeUp";

const columns = (job: string): Column<MissedRange>[] => [
  { key: "count", head: "Fires", phone: "first", cell: (range) => <StateMark state="MISSED" detail={plural(range.count, "fire")} /> },
  { key: "first", head: "First", cell: (range) => <Time at={range.first} exact /> },
  { key: "last", head: "Last", cell: (range) => <Time at={range.last} exact /> },
  { key: "reason", head: "Reason", grow: true, cell: (range) => <span title={range.reason}>{range.reason}</span> },
  { key: "made up", head: "Backfilled", cell: (range) => <BackfilledBy ids={range.backfills} /> },
  { key: "verbs", head: <span className="sr">Verbs</span>, cell: (range) => (range.backfills.length > 0 ? null : <MakeUp job={job} name={null} range={range} />) },
];

export function Missed({ job }: { job: string }) {
  const missed = useQuery({
    queryKey: ["job", job, "missed"],
    queryFn: ({ signal }) => get<MissedRange[]>(`${jobPath(job)}/missed`, {}, signal),
    refetchInterval: 15_000,
  });
  if (missed.isPending) return <Skeleton />;
  if (missed.data === undefined) return <ProblemBox error={missed.error} retry={() => void missed.refetch()} />;
  if (missed.data.length === 0)
    return (
      <Card>
        <Empty title="No fire was missed">Fires that nobody could fire in time, or that fell into a pause, would be here with their reason.</Empty>
      </Card>
    );
  return (
    <Card flush>
      <Table label="Missed fires" columns={columns(job)} rows={missed.data} rowKey={(range) => range.recorded_at + range.first} />
    </Card>
  );
}
