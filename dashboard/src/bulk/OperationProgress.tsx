// The progress of an operation, until it has ended. It goes on when the dialog is closed.
import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useEffect, useRef, useState } from "react";
import { change } from "../api/client";
import type { OperationView } from "../api/schema";
import { count, counted, plural, shortId } from "../lib/format";
import { Button } from "../ui/Button";
import { ConflictOrProblem, Dialog } from "../ui/Dialog";
import { ProblemBox } from "../ui/Problem";
import { say } from "../ui/Toasts";
import { operationPath, PROGRESS_WORDS, readOperation } from "./acts";
import styles from "./Bulk.module.css";

function Watch({ id, children }: { id: string; children: string }) {
  return (
    <Link to="/operations" search={{ op: id }}>
      {children}
    </Link>
  );
}

export function OperationProgress({ begun, title, onEnd, onClose }: { begun: OperationView; title: string; onEnd: () => void; onClose: () => void }) {
  const found = useQuery({
    queryKey: ["operation", begun.id],
    queryFn: ({ signal }) => readOperation(begun.id, signal),
    initialData: begun,
    refetchInterval: (query) => (query.state.data?.ended_at ? false : 500),
  });
  const [problem, setProblem] = useState<unknown>(null);
  const told = useRef(false);
  const operation = found.data;
  const over = operation.ended_at !== null;
  useEffect(() => {
    if (!over || told.current) return;
    told.current = true;
    onEnd();
  }, [over, onEnd]);
  const cancel = async (): Promise<void> => {
    try {
      await change("POST", `${operationPath(begun.id)}:cancel`, operation.etag, {});
    } catch (error) {
      setProblem(error);
    }
    await found.refetch();
  };
  const close = (): void => {
    if (!over) say(<>The operation goes on. <Watch id={begun.id}>Watch it</Watch></>);
    onClose();
  };
  const met = operation.done + operation.failed;
  const refused = operation.failed > 0 ? `, ${count(operation.failed)} refused` : "";
  return (
    <Dialog title={title} onClose={close}>
      <progress className={styles.progress} aria-label="Progress" max={Math.max(1, over ? met : operation.count)} value={over ? Math.max(1, met) : met} />
      <p role="status">
        {PROGRESS_WORDS[operation.state] ?? operation.state}: {count(operation.done)} of {counted(operation.count, !operation.exact)} done{refused}.
        {operation.reason ? ` ${operation.reason}.` : ""}
      </p>
      {operation.failures.length > 0 ? (
        <ul className={styles.refused}>
          {operation.failures.map((failure) => (
            <li key={failure.id} className="wrap">
              {shortId(failure.id)}: {failure.reason}
            </li>
          ))}
          {operation.failed > operation.failures.length ? <li>and {plural(operation.failed - operation.failures.length, "other")}</li> : null}
        </ul>
      ) : null}
      {problem ? <ConflictOrProblem error={problem} /> : null}
      {found.error ? <ProblemBox error={found.error} /> : null}
      <footer className={styles.foot}>
        <Watch id={begun.id}>Details</Watch>
        {over ? null : <Button onClick={() => void cancel()}>Stop here</Button>}
        <Button kind="primary" onClick={close}>
          {over ? "Close" : "Go on in the background"}
        </Button>
      </footer>
    </Dialog>
  );
}
