// How many rows a list has in all. A list that ends on its first page says so by itself; otherwise the server counts,
// or estimates, as before a verb on many.
import { useQuery } from "@tanstack/react-query";
import { useMay } from "../api/session";
import type { Keyset } from "../ui/useKeyset";
import { countMatching, type Filter, type Target } from "./acts";

export interface Total {
  count: number;
  exact: boolean;
}

const EVERY_MS = 60_000;
/** Together these match whatever the filter matches: no row is counted twice. */
const COUNTED_BY: Record<Target, string[]> = { jobs: ["pause"], runs: ["retry", "cancel"], "dead-letters": ["replay"] };

export function useTotal<Row>(target: Target, filter: Filter, list: Keyset<Row>, after: string | undefined): Total | null {
  const may = useMay(`${target.replace("-", "_")}.act`);
  const whole = after === undefined && list.next === null;
  const found = useQuery({
    queryKey: ["total", target, filter],
    queryFn: async ({ signal }) => {
      const parts = await Promise.all(COUNTED_BY[target].map((verb) => countMatching(target, verb, filter, signal)));
      return { count: parts.reduce((sum, part) => sum + part.count, 0), exact: parts.every((part) => part.exact) };
    },
    enabled: may && !whole && !list.pending && !list.stale,
    staleTime: EVERY_MS,
    refetchInterval: EVERY_MS,
    retry: false,
  });
  if (list.pending || list.stale) return null;
  return whole ? { count: list.rows.length, exact: true } : (found.data ?? null);
}
