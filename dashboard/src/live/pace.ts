// How often queries are repeated. While the stream tells what has changed, polling is only there for what it missed.
import type { Query, QueryClient } from "@tanstack/react-query";
import { link } from "./beat";
import { topicsOf } from "./topics";

type Interval = number | false | ((query: Query) => number | false | undefined) | undefined;

const LEAST_MS = 15_000;
const SLOWER = 5;

/** Make every query of this client that has a topic poll slowly while the stream lives. */
export function relaxWhileLive(client: QueryClient): void {
  const defaults = client.defaultQueryOptions.bind(client) as (options: object) => object;
  client.defaultQueryOptions = ((options: { _defaulted?: boolean }) => {
    const made = defaults(options) as { queryKey: readonly unknown[]; refetchInterval?: Interval };
    if (options._defaulted || !made.refetchInterval || topicsOf(made.queryKey).length === 0) return made;
    const { refetchInterval } = made;
    const relaxed = (query: Query): number | false | undefined => {
      const ms = typeof refetchInterval === "function" ? refetchInterval(query) : refetchInterval;
      return ms && link() === "live" ? Math.max(LEAST_MS, ms * SLOWER) : ms;
    };
    return { ...made, refetchInterval: relaxed };
  }) as unknown as QueryClient["defaultQueryOptions"];
}
