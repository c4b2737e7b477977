// One operation: progress, what it was asked for, and the things that refused the verb.
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { SquareX } from "lucide-react";
import { useState } from "react";
import { change } from "../../api/client";
import type { OperationView } from "../../api/schema";
import { filterWords, operationPath, operationWords, PROGRESS_WORDS, readOperation, shownTarget } from "../../bulk/acts";
import { count, counted, plural, shortId } from "../../lib/format";
import { Button } from "../../ui/Button";
import { Confirm } from "../../ui/Dialog";
import { Meter } from "../../ui/Meter";
import { Card, Facts, Skeleton } from "../../ui/Page";
import { ProblemBox } from "../../ui/Problem";
import { StateMark } from "../../ui/StateMark";
import { Time } from "../../ui/Time";
import { say } from "../../ui/Toasts";
import { CloseDetail } from "./CloseDetail";
import styles from "./Operations.module.css";

export function OperationCard({ id }: { id: string }) {
  const found = useQuery({
    queryKey: ["operation", id],
    queryFn: ({ signal }) => readOperation(id, signal),
    refetchInterval: (query) => (query.state.data?.ended_at ? false : 1000),
  });
  const operation = found.data;
  if (operation === undefined)
    return (
      <Card title="Operation" aside={<CloseDetail name="op" />}>
        {found.isPending ? <Skeleton lines={3} /> : <ProblemBox error={found.error} retry={() => void found.refetch()} />}
      </Card>
    );
  const { done, failed, exact } = operation;
  return (
    <Card
      title={<span className={styles.title}>{operationWords(operation)} <StateMark state={operation.state} /></span>}
      aside={
        <span className={styles.title}>
          {operation.ended_at ? null : <StopOperation operation={operation} />}
          <CloseDetail name="op" />
        </span>
      }
    >
      <div className={styles.detail}>
        <Meter wide label="Progress" total={operation.count} good={done} bad={failed}>
          <span role="status">
            {PROGRESS_WORDS[operation.state] ?? operation.state}: {count(done)} of {counted(operation.count, !exact)} done
            {failed > 0 ? `, ${count(failed)} refused` : ""}.{operation.reason ? ` ${operation.reason}.` : ""}
          </span>
        </Meter>
        <Facts
          rows={[
            ["Chosen by", operation.filter === null ? "ids" : filterWords(operation.filter)],
            ["Asked for by", operation.requested_by],
            ["Begun", <Time key="b" at={operation.created_at} exact focusable />],
            ["Ended", <Time key="e" at={operation.ended_at} exact focusable none="not yet" />],
            ["Operation", <code key="o">{operation.id}</code>],
          ]}
        />
        <Refusals operation={operation} />
      </div>
    </Card>
  );
}

function Refusals({ operation }: { operation: OperationView }) {
  if (operation.failures.length === 0) return null;
  const more = operation.failed - operation.failures.length;
  return (
    <section aria-label="Refused">
      <h3>Refused</h3>
      <ul className={styles.refused}>
        {operation.failures.map((failure) => (
          <li key={failure.id} className="wrap">
            <Thing target={operation.target} id={failure.id} /> {failure.reason}
          </li>
        ))}
        {more > 0 ? <li className="muted">and {plural(more, "other")}</li> : null}
      </ul>
    </section>
  );
}

function Thing({ target, id }: { target: string; id: string }) {
  return target === "jobs" ? (
    <Link to="/jobs/$job" params={{ job: id }} className="mono">
      {shortId(id)}
    </Link>
  ) : (
    <Link to="/runs/$run" params={{ run: id }} className="mono" title={id}>
      {shortId(id)}
    </Link>
  );
}

/** What is done stays done, so it is asked once. */
export function StopOperation({ operation }: { operation: OperationView }) {
  const [asked, setAsked] = useState<string | null>(null); // the tag of what was seen when the dialog opened
  const client = useQueryClient();
  const readAgain = async (): Promise<void> => {
    await client.invalidateQueries({ queryKey: ["operation", operation.id] });
    await client.invalidateQueries({ queryKey: ["list", "/v1/operations"] });
  };
  const act = async (seen: string): Promise<void> => {
    await change("POST", `${operationPath(operation.id)}:cancel`, seen, {});
    say("The operation is stopped.");
    await readAgain();
  };
  return (
    <>
      <Button needs="operations.cancel" icon={<SquareX size={14} />} onClick={() => setAsked(operation.etag)} aria-label={`Stop ${operationWords(operation)}`}>
        Stop
      </Button>
      {asked !== null ? (
        <Confirm
          title={`Stop "${operationWords(operation)}"?`} verb="Stop the operation" act={() => act(asked)} onClose={() => setAsked(null)} onConflict={() => void readAgain()}
          same={{ command: ["operation", "cancel", operation.id], method: "POST", path: `${operationPath(operation.id)}:cancel`, body: {} }}
        >
          <p>
            What is done stays done: {count(operation.done)} {shownTarget(operation)} so far. The rest is left as it is.
          </p>
        </Confirm>
      ) : null}
    </>
  );
}
