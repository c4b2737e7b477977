// What several pages ask for.
import { queryOptions, useQuery } from "@tanstack/react-query";
import type { Schema } from "../ui/PayloadEditor";
import { call, get } from "./client";
import type { JobView, Overview, QueueList, QueueView, RunListRow, TaskList, Upcoming, WorkerList, WorkerView } from "./schema";

export function jobPath(job: string): string {
  return `/v1/jobs/${encodeURIComponent(job)}`;
}

export function runPath(run: string): string {
  return `/v1/runs/${encodeURIComponent(run)}`;
}

const WINDOWS = ["1h", "6h", "24h", "7d", "30d"] as const;
export type Window = (typeof WINDOWS)[number];
export const OVERVIEW_WINDOWS: readonly Window[] = WINDOWS;

/** The figures of the overview. The window is an hour, unless the address has another. */
export const overviewQuery = (asked: string | undefined, queue: string | undefined, task: string | undefined) => {
  const w = WINDOWS.find((one) => one === asked) ?? "1h";
  return queryOptions({
    queryKey: ["overview", w, queue, task],
    queryFn: ({ signal }) => get<Overview>("/v1/insights/overview", { w, queue, task }, signal),
    refetchInterval: 3000,
  });
};

export const jobQuery = (job: string) =>
  queryOptions({
    queryKey: ["job", job],
    queryFn: async ({ signal }) => (await call<JobView>("GET", jobPath(job), { signal })).data,
    refetchInterval: 3000,
  });

export const upcomingQuery = (job: string) =>
  queryOptions({
    queryKey: ["job", job, "upcoming"],
    queryFn: ({ signal }) => get<Upcoming>(`${jobPath(job)}/upcoming`, { n: 10 }, signal),
    refetchInterval: 15_000,
  });

export const latestRunsQuery = (job: string) =>
  queryOptions({
    queryKey: ["job", job, "latest"],
    queryFn: ({ signal }) => get<RunListRow[]>(`${jobPath(job)}/runs`, { limit: 100, view: "row" }, signal),
    refetchInterval: 3000,
  });

export const tasksQuery = queryOptions({
  queryKey: ["tasks"],
  queryFn: ({ signal }) => get<TaskList>("/v1/tasks", {}, signal),
  staleTime: 30_000,
});

export const queuesQuery = queryOptions({
  queryKey: ["queues"],
  queryFn: ({ signal }) => get<QueueList>("/v1/queues", {}, signal),
  refetchInterval: 3000,
});

export const queueQuery = (queue: string) =>
  queryOptions({
    queryKey: ["queues", queue],
    queryFn: async ({ signal }) => (await call<QueueView>("GET", `/v1/queues/${encodeURIComponent(queue)}`, { signal })).data,
    refetchInterval: 3000,
  });

export const workersQuery = queryOptions({
  queryKey: ["workers"],
  queryFn: ({ signal }) => get<WorkerList>("/v1/workers", {}, signal),
  refetchInterval: 3000,
});

export const workerQuery = (worker: string) =>
  queryOptions({
    queryKey: ["workers", worker],
    queryFn: async ({ signal }) => (await call<WorkerView>("GET", `/v1/workers/${encodeURIComponent(worker)}`, { signal })).data,
    refetchInterval: 3000,
  });

/** The JSON Schema of the payloads of a task, if a live worker declares one. */
export function useSchema(task: string | undefined): Schema | null {
  const { data } = useQuery({ ...tasksQuery, enabled: task !== undefined });
  return (data?.tasks.find((one) => one.task === task)?.payload_schema as Schema | undefined) ?? null;
}

/** Whether a run with this state has yet to end. */
export function isLive(state: string): boolean {
  return ["SCHEDULED", "WAITING", "HELD", "QUEUED", "RUNNING"].includes(state);
}
