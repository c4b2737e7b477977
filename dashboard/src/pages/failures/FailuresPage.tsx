import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { useSearch } from "@tanstack/react-router";
import { get } from "../../api/client";
import type { Failures } from "../../api/schema";
import { plural } from "../../lib/format";
import { Filters, TextFilter } from "../../ui/Filters";
import { Card, Empty, Page, Skeleton, Toolbar } from "../../ui/Page";
import { ProblemBox } from "../../ui/Problem";
import { TimeRange, useRange } from "../../ui/TimeRange";
import { FailureTable } from "./FailureTable";

const spanOf = (w: string): string => (w === "1h" ? "hour" : w.replace(/h$/, " hours").replace(/d$/, " days"));

export function FailuresPage() {
  const search = useSearch({ from: "/failures" });
  const w = search.w ?? "24h";
  const { since } = useRange({ w, since: search.since });
  const during = search.since === undefined ? `in the last ${spanOf(w)}` : "since then";
  const failures = useQuery({
    queryKey: ["failures", since, search.task, search.queue, search.job],
    queryFn: ({ signal }) => get<Failures>("/v1/insights/failures", { since, task: search.task, queue: search.queue, job: search.job }, signal),
    refetchInterval: 10_000,
    placeholderData: keepPreviousData,
  });
  const active = (["task", "queue", "job"] as const).filter((name) => search[name] !== undefined);
  return (
    <Page title="Failures" lead="Failed attempts, grouped by what went wrong. Numbers, ids and quoted words in errors do not count.">
      <Toolbar>
        <TimeRange search={search} usual="24h" open />
        <Filters active={active}>
          <TextFilter name="task" value={search.task} label="Task" wide />
          <TextFilter name="queue" value={search.queue} label="Queue" />
          <TextFilter name="job" value={search.job} label="Job id" />
        </Filters>
      </Toolbar>
      <Card flush>
        {failures.isPending ? (
          <Skeleton />
        ) : failures.data === undefined ? (
          <ProblemBox error={failures.error} retry={() => void failures.refetch()} />
        ) : failures.data.groups.length === 0 ? (
          <Empty title="Nothing failed" command="mainspring submit --command 'exit 1' --retries 0 --wait">
            {active.length > 0 ? `No attempt that matches failed ${during}.` : `No attempt failed ${during}. To see how a failure looks, make one:`}
          </Empty>
        ) : (
          <FailureTable groups={failures.data.groups} />
        )}
      </Card>
      {failures.data && failures.data.left_out > 0 ? <p className="muted">{plural(failures.data.left_out, "smaller group")} not shown.</p> : null}
    </Page>
  );
}
