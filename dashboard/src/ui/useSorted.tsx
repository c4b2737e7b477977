// Sorting by a column, in the address. It is offered only where all rows are there: to sort one page of many would show
// the largest of fifty as the largest of all.
import { useSearch } from "@tanstack/react-router";
import { ArrowDown, ArrowUp, ArrowUpDown } from "lucide-react";
import { useSetSearch } from "./Filters";
import type { Column } from "./Table";
import styles from "./Table.module.css";

export type SortKey = string | number | null | undefined;

/** Lists read as many at once when they are sorted. */
export const MOST_SORTED = 200;

export function useSort(): string | undefined {
  return (useSearch({ strict: false }) as { sort?: string }).sort;
}

export function useSorted<Row>(rows: Row[], columns: Column<Row>[], offered: boolean): { rows: Row[]; columns: Column<Row>[] } {
  const sort = useSort();
  const set = useSetSearch();
  if (!offered || !columns.some((column) => column.by)) return { rows, columns };
  const down = sort?.startsWith("-") ?? false;
  const key = sort?.replace(/^-/, "");
  const by = columns.find((column) => column.key === key)?.by;
  const heads = columns.map((column) => {
    if (!column.by) return column;
    const on = column.key === key;
    const next = !on ? `-${column.key}` : down ? column.key : undefined; // the largest first, then the smallest, then as it was
    const Icon = !on ? ArrowUpDown : down ? ArrowDown : ArrowUp;
    const head = (
      <button type="button" className={styles.sort} onClick={() => set({ sort: next })}>
        {column.head} <Icon size={12} aria-hidden="true" className={on ? undefined : styles.unsorted} />
      </button>
    );
    return { ...column, head, ...(on ? { sorted: down ? ("descending" as const) : ("ascending" as const) } : {}) };
  });
  return { rows: by ? [...rows].sort((a, b) => (down ? compare(by(b), by(a), -1) : compare(by(a), by(b), 1))) : rows, columns: heads };
}

/** What has no value comes last, whatever the direction. */
function compare(a: SortKey, b: SortKey, last: 1 | -1): number {
  const none = (value: SortKey): boolean => value === null || value === undefined || value === "";
  if (none(a) || none(b)) return none(a) === none(b) ? 0 : none(a) ? last : -last;
  return typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b));
}
