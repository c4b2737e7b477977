// A list by keyset: one page at a time, by the cursor in the address. Known rows change in place. New rows wait while
// the pointer or the focus is in the list, so that nothing moves under it.
import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { useCallback, useRef, useState } from "react";
import { call, type Query } from "../api/client";
import { MOST_SORTED, useSort } from "./useSorted";

interface Options<Body, Row> {
  path: string;
  query: Query;
  after: string | undefined;
  rows: (body: Body) => Row[];
  next?: (body: Body) => string | null | undefined;
  id: (row: Row) => string;
  limit?: number;
  everyMs?: number;
  enabled?: boolean;
}

export interface Keyset<Row> {
  rows: Row[];
  waiting: number;
  showNew: () => void;
  next: string | null;
  /** How far back the server has looked, if the time of the search was over before the page was full. */
  searchedTo: string | null;
  pending: boolean;
  stale: boolean;
  error: unknown;
  retry: () => void;
  area: { onPointerEnter: () => void; onPointerLeave: () => void };
}

export function useKeyset<Body, Row>(options: Options<Body, Row>): Keyset<Row> {
  const { path, query, after, everyMs = 4000, enabled = true } = options;
  const limit = options.limit ?? (useSort() === undefined ? 50 : MOST_SORTED);
  const held = useRef(false);
  const shown = useRef<{ key: string; rows: Row[] }>({ key: "", rows: [] });
  const [, render] = useState(0);
  const key = JSON.stringify([path, query, after, limit]);
  const found = useQuery({
    queryKey: ["list", path, query, after, limit],
    queryFn: async ({ signal }) => {
      const answer = await call<Body>("GET", path, { query: { ...query, cursor: after, limit }, signal });
      const looked = (answer.data as { searched_to?: string | null }).searched_to ?? null;
      return { rows: options.rows(answer.data), next: options.next?.(answer.data) ?? answer.next, searchedTo: looked };
    },
    refetchInterval: everyMs,
    placeholderData: keepPreviousData,
    enabled,
  });
  const fresh = found.data?.rows ?? [];
  const settled = !found.isPlaceholderData;
  // Under the pointer rows keep their places. An empty list has none to keep.
  const keeps = held.current && shown.current.key === key && shown.current.rows.length > 0;
  if (settled && !keeps) shown.current = { key, rows: fresh };
  const known = new Map(fresh.map((row) => [options.id(row), row]));
  const rows = settled ? shown.current.rows.map((row) => known.get(options.id(row)) ?? row) : fresh;
  const ids = new Set(rows.map(options.id));
  const waiting = settled ? fresh.filter((row) => !ids.has(options.id(row))).length : 0;
  const showNew = useCallback(() => {
    shown.current = { key: "", rows: [] };
    render((n) => n + 1);
  }, []);
  return {
    rows,
    waiting,
    showNew,
    next: found.data?.next ?? null,
    searchedTo: found.data?.searchedTo ?? null,
    pending: found.isPending,
    stale: found.isPlaceholderData,
    error: found.error,
    retry: () => void found.refetch(),
    area: {
      onPointerEnter: () => {
        held.current = true;
      },
      onPointerLeave: () => {
        held.current = false;
      },
    },
  };
}
