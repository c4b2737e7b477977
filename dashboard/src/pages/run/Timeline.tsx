import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { get } from "../../api/client";
import { isLive, runPath } from "../../api/queries";
import type { RunView, TimelineEntry } from "../../api/schema";
import { duration, errorLine } from "../../lib/format";
import { Card, Skeleton } from "../../ui/Page";
import { Parts } from "../../ui/Parts";
import { ProblemBox } from "../../ui/Problem";
import { StateMark } from "../../ui/StateMark";
import { Time, Words } from "../../ui/Time";
import { Attempts } from "./Attempts";
import styles from "./RunPage.module.css";

export function useTimeline(run: RunView) {
  return useQuery({
    queryKey: ["run", run.run_id, "timeline", run.status, run.attempt_number],
    queryFn: ({ signal }) => get<TimelineEntry[]>(`${runPath(run.run_id)}/timeline`, {}, signal),
    refetchInterval: isLive(run.status) ? 2000 : false,
    placeholderData: keepPreviousData,
  });
}

export function Timeline({ run }: { run: RunView }) {
  const timeline = useTimeline(run);
  if (timeline.isPending) return <Skeleton />;
  if (timeline.data === undefined) return <ProblemBox error={timeline.error} retry={() => void timeline.refetch()} />;
  return (
    <>
      <Attempts run={run} entries={timeline.data} />
      <Card title="States">
        <Parts label="the timeline" rows={timeline.data}>
          {(shown) => (
            <ol className={styles.timeline}>
              {shown.map((entry, index) => (
                <Entry key={index} entry={entry} />
              ))}
            </ol>
          )}
        </Parts>
      </Card>
    </>
  );
}

function Entry({ entry }: { entry: TimelineEntry }) {
  return (
    <li>
      <StateMark state={entry.state} detail={entry.attempt ? `attempt ${entry.attempt}` : null} />
      <Time at={entry.at} exact focusable />
      <span className="wrap">
        <Words text={[entry.worker_name ?? entry.node_id, entry.reason, entry.error ? errorLine(entry.error) : null, entry.duration ? `ran ${duration(entry.duration)}` : null]
          .filter(Boolean)
          .join(" · ")} />
      </span>
    </li>
  );
}
