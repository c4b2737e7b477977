// A long list a part at a time: a page never has more than 200 rows of it.
import { type ReactNode, useState } from "react";
import { count } from "../lib/format";
import { Button } from "./Button";
import styles from "./Parts.module.css";

export const MOST_ROWS = 200;

interface Props<Row> {
  label: string;
  rows: Row[];
  /** Fewer than 200 where a page has several lists. */
  most?: number;
  children: (shown: Row[]) => ReactNode;
}

export function Parts<Row>({ label, rows, most = MOST_ROWS, children }: Props<Row>) {
  const [chosen, setChosen] = useState(0);
  const from = chosen < rows.length ? chosen : 0;
  const to = Math.min(rows.length, from + most);
  return (
    <>
      {children(rows.slice(from, to))}
      {rows.length > most ? (
        <nav className={styles.parts} aria-label={`Parts of ${label}`}>
          <Button kind="quiet" disabled={from === 0} onClick={() => setChosen(from - most)}>
            Previous {most}
          </Button>
          <span className="muted">
            {count(from + 1)} to {count(to)} of {count(rows.length)}
          </span>
          <Button kind="quiet" disabled={to === rows.length} onClick={() => setChosen(to)}>
            Next {most}
          </Button>
        </nav>
      ) : null}
    </>
  );
}
