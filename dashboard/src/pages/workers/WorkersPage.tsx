import { useQuery } from "@tanstack/react-query";
import { useSearch } from "@tanstack/react-router";
import { useState } from "react";
import { workersQuery } from "../../api/queries";
import type { WorkerView } from "../../api/schema";
import { count } from "../../lib/format";
import { ChoiceFilter, Filters, TextFilter } from "../../ui/Filters";
import { Card, Empty, Figure, Figures, Page, Skeleton } from "../../ui/Page";
import { ProblemBox } from "../../ui/Problem";
import { Table } from "../../ui/Table";
import { Drain, workerColumns } from "./columns";

export function WorkersPage() {
  const [draining, setDraining] = useState<WorkerView | null>(null);
  const workers = useQuery(workersQuery);
  const search = useSearch({ from: "/workers" });
  const all = workers.data?.workers ?? [];
  const shown = all.filter((worker) => has(worker, search.q) && (search.state === undefined || worker.state === search.state));
  const active = (["q", "state"] as const).filter((name) => search[name] !== undefined);
  const live = all.filter((worker) => worker.state === "LIVE" || worker.state === "DRAINING");
  const slots = live.reduce((sum, worker) => sum + worker.slots, 0);
  const busy = live.reduce((sum, worker) => sum + worker.running, 0);
  return (
    <Page title="Workers" lead="Processes that run attempts. Those that ended within the last hour are shown too.">
      {live.length > 0 ? (
        <Figures>
          <Figure label="Live" value={count(live.length)} />
          <Figure label="Busy slots" value={`${count(busy)} of ${count(slots)}`} />
          <Figure label="Lost" value={count(all.filter((worker) => worker.state === "LOST").length)} />
        </Figures>
      ) : null}
      <Filters active={active}>
        <TextFilter name="q" value={search.q} label="Name, queue, task or label" wide />
        <ChoiceFilter name="state" value={search.state} label="State" options={STATES} />
      </Filters>
      <Card flush>
        {workers.isPending ? (
          <Skeleton />
        ) : workers.data === undefined ? (
          <ProblemBox error={workers.error} retry={() => void workers.refetch()} />
        ) : all.length === 0 ? (
          <Empty title="No worker" command="mainspring worker --app examples.hello:app">
            Nothing can run until a worker is there:
          </Empty>
        ) : shown.length === 0 ? (
          <Empty title="No worker matches.">Clear the filters to see all workers.</Empty>
        ) : (
          <Table label="Workers" columns={workerColumns(setDraining)} rows={shown} rowKey={(worker) => worker.worker_id} />
        )}
      </Card>
      {draining ? <Drain worker={draining} onClose={() => setDraining(null)} /> : null}
    </Page>
  );
}

const STATES: [string, string][] = [["LIVE", "Live"], ["DRAINING", "Draining"], ["LOST", "Lost"], ["STOPPED", "Stopped"]];

function has(worker: WorkerView, text = ""): boolean {
  if (text === "") return true;
  const labels = Object.entries(worker.labels).map(([key, value]) => `${key}=${value}`);
  return [worker.name, worker.worker_id, ...worker.queues, ...worker.tasks, ...labels].some((word) => word.toLowerCase().includes(text.toLowerCase()));
}
