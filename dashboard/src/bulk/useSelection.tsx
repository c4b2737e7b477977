// Which rows of a list are chosen: some by their ticks, or all that match.
import { useState } from "react";
import type { Column } from "../ui/Table";
import type { Filter } from "./acts";

export interface Selection<Row> {
  /** Of the rows on the page. */
  picked: Row[];
  all: boolean;
  has: (row: Row) => boolean;
  chooseAll: () => void;
  clear: () => void;
  column: Column<Row>;
}

interface Chosen {
  of: string;
  ids: ReadonlySet<string>;
  all: boolean;
}

/** Another filter ends the selection. */
export function useSelection<Row>(rows: Row[], filter: Filter, id: (row: Row) => string, name: (row: Row) => string): Selection<Row> {
  const of = JSON.stringify(filter);
  const none: Chosen = { of, ids: new Set(), all: false };
  const [state, setState] = useState(none);
  const { ids: chosen, all } = state.of === of ? state : none;
  const choose = (ids: Iterable<string>, whole = false): void => setState({ of, ids: new Set(ids), all: whole });
  const picked = rows.filter((row) => chosen.has(id(row)));
  const has = (row: Row): boolean => all || chosen.has(id(row));
  const toggle = (row: Row): void => {
    const next = new Set(all ? rows.map(id) : chosen);
    if (!next.delete(id(row))) next.add(id(row));
    choose(next);
  };
  const clear = (): void => choose([]);
  const whole = rows.length > 0 && (all || picked.length === rows.length);
  const column: Column<Row> = {
    key: "pick", phone: "first",
    head: (
      <input
        type="checkbox" aria-label="Select all rows of this page" checked={whole}
        onChange={() => (whole ? clear() : choose(rows.map(id)))}
      />
    ),
    cell: (row) => <input type="checkbox" aria-label={`Select ${name(row)}`} checked={has(row)} onChange={() => toggle(row)} />,
  };
  return { picked, all, has, chooseAll: () => choose(chosen, true), clear, column };
}
