// What the server says about a schedule while somebody types it.
import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { useEffect, useState } from "react";
import { post, Refused } from "../../api/client";
import type { ScheduleExplanation } from "../../api/schema";
import { type Draft, scheduleOf } from "./draft";
import { byField, type Problems, problemsOf } from "./problems";

const PAUSE_MS = 250;

interface Explained {
  /** The last schedule that was valid; it may be older than what is typed. */
  shown: ScheduleExplanation | null;
  problems: Problems;
  /** No answer, for a reason that has nothing to do with the schedule. */
  failure: unknown;
}

export function useExplanation(draft: Draft): Explained {
  const schedule = scheduleOf(draft);
  const body = schedule ? JSON.stringify({ schedule, n: 10, ...(draft.jobId ? { job_id: draft.jobId } : {}) }) : null;
  const [asked, setAsked] = useState<string | null>(null);
  useEffect(() => {
    const timer = window.setTimeout(() => setAsked(body), PAUSE_MS);
    return () => window.clearTimeout(timer);
  }, [body]);
  const answer = useQuery({
    queryKey: ["explain", asked],
    queryFn: () => post<ScheduleExplanation>("/v1/schedules:explain", JSON.parse(asked ?? "{}")),
    enabled: asked !== null,
    placeholderData: keepPreviousData,
    retry: false,
  });
  if (asked === null || body === null) return { shown: null, problems: {}, failure: null };
  const current = asked === body && !answer.isPlaceholderData;
  const refused = answer.error instanceof Refused && answer.error.status === 422;
  return {
    shown: answer.data?.valid && !answer.error ? answer.data : null,
    problems: current ? { ...byField(answer.data?.problems ?? []), ...problemsOf(refused ? answer.error : null) } : {},
    failure: refused ? null : answer.error,
  };
}
