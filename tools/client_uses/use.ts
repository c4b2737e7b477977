// Uses the generated TypeScript types, with openapi-fetch.
import createClient from "openapi-fetch";
import type { components, paths } from "./api.js";

declare const process: { env: Record<string, string>; exit(code: number): never };

const client = createClient<paths>({
  baseUrl: process.env.MAINSPRING_URL,
  headers: { Authorization: `Bearer ${process.env.MAINSPRING_TOKEN}` },
});

function check(holds: boolean, what: unknown): asserts holds {
  if (!holds) {
    console.error("failed:", what);
    process.exit(1);
  }
}

const made = await client.POST("/v1/jobs", { body: { job_id: "ts", task: "nobody", cron: "0 9 * * MON-FRI", timeout: "5m" } });
check(made.data?.job_id === "ts", made.error);

type JobRequest = components["schemas"]["JobRequest"];
// @ts-expect-error: there is no such field
const misspelt: JobRequest = { task: "nobody", crno: "0 9 * * *" };
// @ts-expect-error: there is no such choice
const unknown: JobRequest = { task: "nobody", overlap: "perhaps" };
for (const [body, code] of [[misspelt, "unknown_field"], [unknown, "invalid_input"]] as const) {
  const refused = await client.POST("/v1/jobs", { body });
  check(refused.error?.code === code && refused.response.status === 422, refused);
}

const paused = await client.POST("/v1/jobs/{job_id}:pause", { params: { path: { job_id: "ts" } } });
const status: components["schemas"]["JobState"] | undefined = paused.data?.status;
check(status === "PAUSED", paused.error);

const ran = await client.POST("/v1/jobs/{job_id}:runNow", { params: { path: { job_id: "ts" } } });
check(ran.data !== undefined, ran.error);
const runs = await client.GET("/v1/runs", { params: { query: { status: ["QUEUED"], job: "ts" } } });
check(runs.data?.runs[0]?.run_id === ran.data.run_id && runs.data.next === null, runs.error);
const metrics = await client.GET("/metrics", { parseAs: "text" });
check(metrics.data?.includes("mainspring_workers") === true, metrics.error);
const gone = await client.DELETE("/v1/jobs/{job_id}", { params: { path: { job_id: "ts" } } });
check(gone.data?.status === "CANCELLED", gone.error);
