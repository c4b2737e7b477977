import { memo } from "react";
import type { StepRunView } from "../../api/schema";
import { duration } from "../../lib/format";
import { NODE_HEIGHT, NODE_WIDTH, type Placed } from "../../lib/layout";
import { hueOf, StateShape, words } from "../../ui/StateMark";
import hues from "../../ui/hues.module.css";
import styles from "./Graph.module.css";
import { isCounted, membersOf } from "./members";

/** A step of a run, or of a definition, which says what it does instead of how it went. */
export interface GraphStep extends Pick<StepRunView, "name" | "status" | "duration" | "map" | "end_time"> {
  does?: string;
}

interface Props {
  step: GraphStep;
  at: Placed;
  current: boolean;
  onChoose: (name: string) => void;
}

/** A step as a button. It is drawn anew when it changes, not when the camera moves. */
export const GraphNode = memo(function GraphNode({ step, at, current, onChoose }: Props) {
  const state = step.status ?? "WAITING";
  const map = step.map;
  return (
    <button
      type="button" className={`${styles.node} ${step.does === undefined ? `${hues[hueOf(state)]} ${styles[hueOf(state)] ?? ""}` : styles.defined} ${current ? styles.current : ""}`} onClick={() => onChoose(step.name)}
      style={{ left: `${at.x}px`, top: `${at.y}px`, width: `${NODE_WIDTH}px`, height: `${NODE_HEIGHT}px` }}
      aria-pressed={current} data-step={step.name} data-state={step.does === undefined ? state : undefined}
    >
      {step.does === undefined ? <StateShape state={state} /> : null}
      <span className={styles.texts}>
        <span className="cut">{step.name}</span>
        <span className={`${styles.note} cut`}>{step.does ?? (map ? membersOf(step) : `${words(state)} ${duration(step.duration)}`)}</span>
      </span>
      {map && map.total && isCounted(step) ? (
        <span className={styles.bar} aria-hidden="true">
          <span className={styles.good} style={{ width: `${(map.succeeded / map.total) * 100}%` }} />
          <span className={styles.bad} style={{ width: `${(map.failed / map.total) * 100}%` }} />
        </span>
      ) : null}
    </button>
  );
});
