// Steps over time: light while they wait, full while they run.
import { useState } from "react";
import type { WorkflowRunView } from "../../api/schema";
import { isLive } from "../../api/queries";
import { duration } from "../../lib/format";
import { useNow } from "../../live/clock";
import { Parts } from "../../ui/Parts";
import { hueOf, StateShape } from "../../ui/StateMark";
import hues from "../../ui/hues.module.css";
import styles from "./Graph.module.css";

export function Gantt({ run, onChoose }: { run: WorkflowRunView; onChoose: (name: string) => void }) {
  const now = useNow(isLive(run.status));
  const [hide, setHide] = useState(false);
  const first = Date.parse(run.start_time ?? run.created_at);
  const last = run.end_time ? Date.parse(run.end_time) : now;
  const span = Math.max(1, last - first);
  const at = (moment: string | null | undefined): number => (((moment ? Date.parse(moment) : now) - first) / span) * 100;
  const steps = run.steps.filter((step) => step.status !== null && (!hide || step.end_time === null || step.end_time === undefined));
  return (
    <div className={styles.panel}>
      <label>
        <input type="checkbox" checked={hide} onChange={(event) => setHide(event.target.checked)} /> Hide finished steps
      </label>
      <Parts label="the steps" rows={steps}>
        {(shown) => (
          <div className={styles.gantt} role="list" aria-label="Steps over time">
            {shown.map((step) => {
              const started = step.start_time ?? step.end_time ?? null;
              const begin = at(step.created_at);
              const start = started ? at(started) : 100;
              const end = step.end_time ? at(step.end_time) : step.start_time ? 100 : start;
              return (
                <div key={step.name} role="listitem">
                  <button type="button" className={`${styles.row} ${hues[hueOf(step.status ?? "")]} ${styles[hueOf(step.status ?? "")] ?? ""}`} onClick={() => onChoose(step.name)}>
                    <span className={styles.name}>
                      <StateShape state={step.status ?? ""} size={12} />
                      <span className={`cut ${styles.texts}`}>{step.name}</span>
                    </span>
                    <span className={styles.track}>
                      <span className={styles.wait} style={{ left: `${begin}%`, width: `${Math.max(0, start - begin)}%` }} />
                      {step.start_time ? <span className={styles.ran} style={{ left: `${start}%`, width: `${Math.max(0, end - start)}%` }} /> : null}
                    </span>
                    <span className={styles.note}>{duration(step.duration)}</span>
                  </button>
                </div>
              );
            })}
          </div>
        )}
      </Parts>
    </div>
  );
}
