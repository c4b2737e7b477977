// What the server refused, in its words: title, detail, hint, code.
import { OctagonAlert, RotateCw } from "lucide-react";
import type { ReactNode } from "react";
import { Refused } from "../api/client";
import { Button } from "./Button";
import styles from "./Problem.module.css";

export function ProblemBox({ error, retry, children }: { error: unknown; retry?: () => void; children?: ReactNode }) {
  const problem = error instanceof Refused ? error.problem : null;
  const fields = problem?.errors ?? [];
  return (
    <div className={styles.box} role="alert">
      <OctagonAlert size={18} aria-hidden="true" />
      <div className={styles.text}>
        <strong className="wrap">{problem?.detail ?? (error instanceof Error ? error.message : String(error))}</strong>
        {problem?.hint ? <p className="wrap">{problem.hint}</p> : null}
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
      {retry ? (
        <Button icon={<RotateCw size={14} />} onClick={retry}>
          Try again
        </Button>
      ) : null}
    </div>
  );
}
