// Which queries show what: a change of a topic is read again by the queries that show it.
import type { QueryClient, QueryKey } from "@tanstack/react-query";

export const LISTS = ["jobs", "runs", "queues", "workers"] as const;
export const MOST_THINGS = 12; // the server takes 16 topics
const UUID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i;

export function topicsOf(key: QueryKey): readonly string[] {
  const [kind, id] = key;
  switch (kind) {
    case "run":
    case "workflow-run":
      return typeof id === "string" && UUID.test(id) ? [`${kind}:${id.toLowerCase()}`] : [];
    case "job":
      return typeof id === "string" && id !== "" && !id.includes(",") ? [`job:${id}`] : [];
    case "list":
      return ofList(String(id));
    case "queues":
      return ["queues"];
    case "workers":
      return ["workers", "runs"];
    case "overview":
      return ["runs", "queues", "workers"];
    case "workflow":
      return ["jobs", "runs"];
    default:
      return [];
  }
}

function ofList(path: string): readonly string[] {
  const job = path.match(/^\/v1\/jobs\/([^/]+)\/runs$/)?.[1];
  if (job !== undefined) return topicsOf(["job", decodeURIComponent(job)]);
  if (path === "/v1/runs" || path.startsWith("/v1/dead-letters")) return ["runs"];
  if (path === "/v1/jobs" || path.startsWith("/v1/workflows")) return ["jobs", "runs"];
  return [];
}

/** The single things that this tab shows. */
export function thingsShown(client: QueryClient): string[] {
  const active = client.getQueryCache().findAll({ type: "active" });
  const things = active.flatMap((query) => topicsOf(query.queryKey)).filter((topic) => topic.includes(":"));
  return [...new Set(things)].sort().slice(0, MOST_THINGS);
}
