// One backfill: progress, range and verbs.
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { Pause, Play, SquareX } from "lucide-react";
import { useState } from "react";
import { change, get } from "../../api/client";
import type { BackfillView } from "../../api/schema";
import { count } from "../../lib/format";
import { Button } from "../../ui/Button";
import { Confirm, ConflictOrProblem } from "../../ui/Dialog";
import { Meter } from "../../ui/Meter";
import { Card, Facts, Skeleton } from "../../ui/Page";
import { ProblemBox } from "../../ui/Problem";
import { StateMark } from "../../ui/StateMark";
import { Time } from "../../ui/Time";
import { CloseDetail } from "./CloseDetail";
import styles from "./Operations.module.css";

const pathOf = (id: string): string => `/v1/backfills/${encodeURIComponent(id)}`;

export function BackfillCard({ id }: { id: string }) {
  const found = useQuery({
    queryKey: ["backfill", id],
    queryFn: ({ signal }) => get<BackfillView>(pathOf(id), {}, signal),
    refetchInterval: (query) => (query.state.data?.ended_at ? false : 1000),
  });
  const backfill = found.data;
  if (backfill === undefined)
    return (
      <Card title="Backfill" aside={<CloseDetail name="backfill" />}>
        {found.isPending ? <Skeleton lines={3} /> : <ProblemBox error={found.error} retry={() => void found.refetch()} />}
      </Card>
    );
  return (
    <Card
      title={<span className={styles.title}>Backfill of {backfill.job_id} <StateMark state={backfill.state} /></span>}
      aside={
        <span className={styles.title}>
          <BackfillVerbs backfill={backfill} />
          <CloseDetail name="backfill" />
        </span>
      }
    >
      <div className={styles.detail}>
        <Meter wide label="Progress" total={backfill.total} good={backfill.succeeded + backfill.existing} going={backfill.running} bad={backfill.failed}>
          <span role="status">
            {wordsOf(backfill)}
            {backfill.reason ? ` ${backfill.reason}.` : ""}
          </span>
        </Meter>
        <Facts
          rows={[
            ["Job", <Link key="j" to="/jobs/$job" params={{ job: backfill.job_id }}>{backfill.job_id}</Link>],
            ["From", <Time key="f" at={backfill.from} exact focusable />],
            ["To, not included", <Time key="t" at={backfill.to} exact focusable />],
            ["Order", `${backfill.order} first, ${count(backfill.concurrency)} at once`],
            ["Begun", <Time key="b" at={backfill.created_at} exact focusable />],
            ["Ended", <Time key="e" at={backfill.ended_at} exact focusable none="not yet" />],
            ["Backfill", <code key="i">{backfill.id}</code>],
          ]}
        />
      </div>
    </Card>
  );
}

function wordsOf(backfill: BackfillView): string {
  const parts: [number, string][] = [
    [backfill.succeeded, "succeeded"], [backfill.failed, "failed"], [backfill.running, "alive"], [backfill.cancelled, "cancelled"],
    [backfill.skipped, "skipped"], [backfill.existing, "had a run before"], [backfill.remaining, "to come"],
  ];
  const told = parts.filter(([number]) => number > 0).map(([number, word]) => `${count(number)} ${word}`);
  return `Of ${count(backfill.total)} fires: ${told.join(", ") || "none yet"}.`;
}

type Verb = "pause" | "resume" | "cancel";

export function BackfillVerbs({ backfill }: { backfill: BackfillView }) {
  const [asked, setAsked] = useState<string | null>(null); // the tag of what was seen when the dialog opened
  const [problem, setProblem] = useState<unknown>(null);
  const client = useQueryClient();
  const readAgain = async (): Promise<void> => {
    await client.invalidateQueries({ queryKey: ["backfill", backfill.id] });
    await client.invalidateQueries({ queryKey: ["list", "/v1/backfills"] });
  };
  const act = async (verb: Verb, seen: string): Promise<void> => {
    await change("POST", `${pathOf(backfill.id)}:${verb}`, seen, {});
    setProblem(null);
    await readAgain();
  };
  if (backfill.ended_at !== null) return null;
  const turn: Verb = backfill.state === "paused" ? "resume" : "pause";
  return (
    <span className={styles.title}>
      {problem ? <ConflictOrProblem error={problem} /> : null}
      <Button needs={`backfills.${turn}`} icon={turn === "pause" ? <Pause size={14} /> : <Play size={14} />} onClick={() => void act(turn, backfill.etag).catch(setProblem)} aria-label={`${turn === "pause" ? "Pause" : "Resume"} the backfill of ${backfill.job_id}`}>
        {turn === "pause" ? "Pause" : "Resume"}
      </Button>
      {backfill.state === "cancelled" ? null : (
        <Button needs="backfills.cancel" icon={<SquareX size={14} />} onClick={() => setAsked(backfill.etag)} aria-label={`Cancel the backfill of ${backfill.job_id}`}>
          Cancel
        </Button>
      )}
      {asked !== null ? (
        <Confirm
          title={`Cancel the backfill of ${backfill.job_id}?`} verb="Cancel the backfill" danger act={() => act("cancel", asked)} onClose={() => setAsked(null)} onConflict={() => void readAgain()}
          same={{ command: ["backfill", "cancel", backfill.id], method: "POST", path: `${pathOf(backfill.id)}:cancel`, body: {}, python: ["cancel_backfill", backfill.id] }}
        >
          <p>It creates no more runs, and those that no worker has taken end. {count(backfill.remaining)} fires stay without a run.</p>
        </Confirm>
      ) : null}
    </span>
  );
}
