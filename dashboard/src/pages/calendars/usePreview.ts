// What rules do to a year and to the fires of the jobs, asked after each pause in typing.
import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { useEffect, useState } from "react";
import { post, Refused } from "../../api/client";
import type { CalendarPreview } from "../../api/schema";
import { type Problems, problemsOf } from "../job-form/problems";

const PAUSE_MS = 300;

interface Previewed {
  /** The last one that was valid; it may be older than what is typed. */
  shown: CalendarPreview | undefined;
  current: boolean;
  problems: Problems;
  failure: unknown;
}

/** Without rules those that are stored. */
export function usePreview(name: string, year: number, rules: Record<string, unknown> | null): Previewed {
  const wanted = JSON.stringify({ year, ...(rules === null ? {} : { rules }) });
  const [body, setBody] = useState(wanted);
  useEffect(() => {
    const timer = window.setTimeout(() => setBody(wanted), PAUSE_MS);
    return () => window.clearTimeout(timer);
  }, [wanted]);
  const found = useQuery({
    queryKey: ["calendar-preview", name, body],
    queryFn: () => post<CalendarPreview>(`/v1/calendars/${encodeURIComponent(name)}:preview`, JSON.parse(body)),
    placeholderData: keepPreviousData,
    retry: false,
    enabled: name !== "",
    refetchInterval: 60_000,
  });
  const refused = found.error instanceof Refused && found.error.status === 422;
  return {
    shown: found.data,
    current: body === wanted && !found.isPlaceholderData && !found.isFetching,
    problems: refused ? problemsOf(found.error) : {},
    failure: refused ? null : found.error,
  };
}
