// What the server refused, in its words: title, detail, hint, code.
import { OctagonAlert, RotateCw } from "lucide-react";
import type { ReactNode } from "react";
import { Refused } from "../api/client";
import { Button } from "./Button";
import styles from "./Problem.module.css";

export function ProblemBox({ error, retry, children }: { error: unknown; retry?: () => void; children?: ReactNode }) {
  const problem = error instanceof Refused ? error.problem : null;
  const fields = problem?.errors ?? [];
  const gone = problem?.status === 404; // it does not come by asking again, and its hint is for programs
  return (
    <div className={styles.box} role="alert">
      <OctagonAlert size={18} aria-hidden="true" />
      <div className={styles.text}>
        <strong className="wrap">{problem?.detail ?? (error instanceof Error ? error.message : String(error))}</strong>
        {gone ? <p>Its address may have a mistake, it may have been deleted, or it belongs to another tenant.</p> : null}
        {problem?.hint && !gone ? <p className="wrap">{problem.hint}</p> : null}
        {fields.length > 0 ? (
          <ul className={styles.fields}>
            {fields.slice(0, 20).map((one, index) => (
              <li key={index} className="wrap">
                <code>{one.field}</code> {one.detail}
              </li>
            ))}
          </ul>
        ) : null}
        {children}
        {problem ? (
          <p className="muted">
            {problem.title} · <code>{problem.code}</code>
            {problem.status > 0 ? ` · ${problem.status}` : ""}
          </p>
        ) : null}
      </div>
      {retry && !gone ? (
        <Button icon={<RotateCw size={14} />} onClick={retry}>
          Try again
        </Button>
      ) : null}
    </div>
  );
}
