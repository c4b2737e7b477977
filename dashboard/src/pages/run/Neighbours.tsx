// The runs before and after this one, of the same job.
import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { latestRunsQuery } from "../../api/queries";
import type { RunView } from "../../api/schema";
import { StateShape } from "../../ui/StateMark";
import styles from "./RunPage.module.css";

export function Neighbours({ run }: { run: RunView }) {
  const { data = [] } = useQuery({ ...latestRunsQuery(run.job_id), refetchInterval: 10_000 });
  const at = data.findIndex((one) => one.run_id === run.run_id);
  if (at === -1 || data.length < 2) return null;
  const older = data[at + 1];
  const newer = data[at - 1];
  return (
    <nav className={styles.neighbours} aria-label="Neighbour runs">
      {older ? (
        <Link to="/runs/$run" params={{ run: older.run_id }} data-key="[">
          ← older <StateShape state={older.status} size={12} />
        </Link>
      ) : (
        <span />
      )}
      {newer ? (
        <Link to="/runs/$run" params={{ run: newer.run_id }} data-key="]">
          <StateShape state={newer.status} size={12} /> newer →
        </Link>
      ) : null}
    </nav>
  );
}
