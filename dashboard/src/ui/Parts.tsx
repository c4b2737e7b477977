// A long list a part at a time: a page never has more than 200 rows of it.
import { type ReactNode, useState } from "react";
import { count } from "../lib/format";
import { Button } from "./Button";
import styles from "./Parts.module.css";

export const MOST_ROWS = 200;

interface Props<Row> {
  label: string;
  rows: Row[];
  children: (shown: Row[]) => ReactNode;
}

export function Parts<Row>({ label, rows, children }: Props<Row>) {
  const [chosen, setChosen] = useState(0);
  const from = chosen < rows.length ? chosen : 0;
  const to = Math.min(rows.length, from + MOST_ROWS);
  return (
    <>
      {children(rows.slice(from, to))}
      {rows.length > MOST_ROWS ? (
        <nav className={styles.parts} aria-label={`Parts of ${label}`}>
          <Button kind="quiet" disabled={from === 0} onClick={() => setChosen(from - MOST_ROWS)}>
            Previous {MOST_ROWS}
          </Button>
          <span className="muted">
            {count(from + 1)} to {count(to)} of {count(rows.length)}
          </span>
          <Button kind="quiet" disabled={to === rows.length} onClick={() => setChosen(to)}>
            Next {MOST_ROWS}
          </Button>
        </nav>
      ) : null}
    </>
  );
}
