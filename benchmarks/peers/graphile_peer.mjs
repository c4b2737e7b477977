// graphile-worker: a local queue, completions in batches, add_jobs for batches.
// https://worker.graphile.org/docs/performance and https://worker.graphile.org/docs/sql-add-job
import fs from "node:fs";
import pg from "pg";
import { makeWorkerUtils, run, runMigrations } from "graphile-worker";

const BATCH = 1000;
const CLIENTS = 16;
const now = () => Date.now() / 1000;
const exact = () => (performance.timeOrigin + performance.now()) / 1000;
const [verb, number] = [process.argv[2], Number(process.argv[3])];
const preset = { worker: { localQueue: { size: 500 }, completeJobBatchDelay: 0, failJobBatchDelay: 0 } };

if (verb === "setup") {
  await runMigrations({ connectionString: "" , pgPool: new pg.Pool() });
  process.exit(0);
} else if (verb === "work") {
  const delays = [];
  const taskList = {
    note: async ({ sent }) => {
      delays.push(exact() - sent);
      if (delays.length === Number(process.env.EXPECT)) {
        fs.writeFileSync(`${process.env.OUT}.new`, JSON.stringify({ last: exact(), delays }));
        fs.renameSync(`${process.env.OUT}.new`, process.env.OUT);
      }
    },
  };
  const runner = await run({ pgPool: new pg.Pool({ max: 12 }), concurrency: 24, pollInterval: 1000, taskList, preset });
  await runner.promise;
} else {
  const pool = new pg.Pool({ max: CLIENTS });
  const utils = await makeWorkerUtils({ pgPool: pool });
  const send = (sent, spec) => utils.addJob("note", { sent }, spec);
  let answer = {};
  if (verb === "throughput") {
    const began = exact();
    for (let start = 0; start < number; start += BATCH) {
      const specs = Array.from({ length: Math.min(BATCH, number - start) }, () => ({ identifier: "note", payload: { sent: exact() } }));
      await utils.addJobs(specs);
    }
    answer = { began, sent: exact() };
  } else if (verb === "singles") {
    const ends = exact() + number;
    let count = 0;
    const began = exact();
    await Promise.all(Array.from({ length: CLIENTS }, async () => {
      while (exact() < ends) {
        await send(exact());
        count += 1;
      }
    }));
    answer = { per_second: count / (exact() - began) };
  } else if (verb === "pick_up") {
    for (let each = 0; each < number; each += 1) {
      await send(exact());
      await new Promise((done) => setTimeout(done, 25));
    }
  } else if (verb === "lag") {
    const first = now() + 3;
    for (let each = 0; each < number; each += 1) {
      const due = first + each * 0.025;
      await send(due, { runAt: new Date(due * 1000) });
    }
  }
  console.log(JSON.stringify(answer));
  await utils.release();
  process.exit(0);
}
