// Which rows of a list are chosen: some by their ticks, or all that match.
import { useState } from "react";
import type { Column } from "../ui/Table";

export interface Selection<Row> {
  /** Of the rows on the page. */
  picked: Row[];
  all: boolean;
  has: (row: Row) => boolean;
  chooseAll: () => void;
  clear: () => void;
  column: Column<Row>;
}

export function useSelection<Row>(rows: Row[], id: (row: Row) => string, name: (row: Row) => string): Selection<Row> {
  const [chosen, setChosen] = useState<ReadonlySet<string>>(new Set());
  const [all, setAll] = useState(false);
  const picked = rows.filter((row) => chosen.has(id(row)));
  const has = (row: Row): boolean => all || chosen.has(id(row));
  const toggle = (row: Row): void => {
    const next = new Set(all ? rows.map(id) : chosen);
    if (!next.delete(id(row))) next.add(id(row));
    setChosen(next);
    setAll(false);
  };
  const clear = (): void => {
    setChosen(new Set());
    setAll(false);
  };
  const whole = rows.length > 0 && (all || picked.length === rows.length);
  const column: Column<Row> = {
    key: "pick", phone: "first",
    head: (
      <input
        type="checkbox" aria-label="Select all rows of this page" checked={whole}
        onChange={() => (whole ? clear() : setChosen(new Set(rows.map(id))))}
      />
    ),
    cell: (row) => <input type="checkbox" aria-label={`Select ${name(row)}`} checked={has(row)} onChange={() => toggle(row)} />,
  };
  return { picked, all, has, chooseAll: () => setAll(true), clear, column };
}
