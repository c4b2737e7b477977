import { useQuery, useQueryClient } from "@tanstack/react-query";
import { Link, useSearch } from "@tanstack/react-router";
import { Gauge, RotateCcw } from "lucide-react";
import { useState } from "react";
import { change, get } from "../../api/client";
import type { BreakerList, BreakerView, LimitDetails, LimitList, LimitView } from "../../api/schema";
import { count, duration, plural, shortId } from "../../lib/format";
import type { Same } from "../../ui/AsCommand";
import { Button } from "../../ui/Button";
import { Confirm, Dialog } from "../../ui/Dialog";
import { Field } from "../../ui/Field";
import { Filters, TextFilter } from "../../ui/Filters";
import { List } from "../../ui/List";
import { Card, Empty, Page, Skeleton } from "../../ui/Page";
import { StateMark } from "../../ui/StateMark";
import { type Column, Table } from "../../ui/Table";
import { Time } from "../../ui/Time";
import { say } from "../../ui/Toasts";
import { useKeyset } from "../../ui/useKeyset";
import { HistoryLink } from "../audit/HistoryLink";

export function LimitsPage() {
  const search = useSearch({ from: "/limits" });
  const [setting, setSetting] = useState<LimitView | null>(null);
  const [holders, setHolders] = useState<LimitView | null>(null);
  const list = useKeyset<LimitList, LimitView>({
    path: "/v1/limits", query: { q: search.q }, after: search.after, rows: (body) => body.limits, next: (body) => body.next,
    id: (limit) => String(limit.limit_id),
  });
  return (
    <Page title="Limits" lead="How many runs at once and how often they start, as jobs and tasks declare it; and circuit breakers.">
      <Breakers />
      <Filters active={search.q === undefined ? [] : ["q"]}>
        <TextFilter name="q" value={search.q} label="Part of a name" wide />
      </Filters>
      <Card flush title="Limits">
        <List
          label="Limits" list={list} after={search.after} rowKey={(limit) => String(limit.limit_id)} columns={columns(setSetting, setHolders)}
          empty={<Empty title="No limits" command="mainspring submit --command 'echo hello' --every 1m --concurrency 1">A job or a task declares a limit. Those of queues are on the page of queues.</Empty>}
        />
      </Card>
      {setting ? <SetLimit limit={setting} onClose={() => setSetting(null)} /> : null}
      {holders ? <Holders limit={holders} onClose={() => setHolders(null)} /> : null}
    </Page>
  );
}

function columns(set: (limit: LimitView) => void, show: (limit: LimitView) => void): Column<LimitView>[] {
  return [
    { key: "name", head: "Limit", phone: "first", grow: true, cell: (limit) => <span title={limit.name}>{limit.name}</span> },
    { key: "limit", head: "Allows", cell: (limit) => limit.rate ?? (limit.limit === null ? "" : `${count(limit.limit)} at once`) },
    { key: "pinned", head: "Set by", phone: "none", room: 1, cell: (limit) => (limit.pinned ? "a person" : "declared") },
    { key: "in_use", head: "In use", align: "end", phone: "none", cell: (limit) => count(limit.in_use) },
    { key: "held", head: "Held", align: "end", cell: (limit) => (limit.held > 0 ? <StateMark state="HELD" detail={count(limit.held)} /> : "0") },
    { key: "keys", head: "Keys", align: "end", phone: "none", room: 1, cell: (limit) => count(limit.keys) },
    { key: "holders", head: <span className="sr">Holders</span>, phone: "none", cell: (limit) => <Button kind="quiet" onClick={() => show(limit)}>Who holds it</Button> },
    { key: "history", head: <span className="sr">History</span>, phone: "none", room: 2, cell: (limit) => <HistoryLink kind="limit" id={String(limit.limit_id)} name={limit.name} /> },
    { key: "verbs", head: <span className="sr">Verbs</span>, phone: "first", cell: (limit) => (limit.rate === null && limit.limit !== null ? <Button needs="limits.set" icon={<Gauge size={14} />} onClick={() => set(limit)}>Set</Button> : null) },
  ];
}

function SetLimit({ limit, onClose }: { limit: LimitView; onClose: () => void }) {
  const [text, setText] = useState(String(limit.limit ?? ""));
  const client = useQueryClient();
  const renew = (): void => void client.invalidateQueries({ queryKey: ["list", "/v1/limits"] });
  const act = async (): Promise<void> => {
    await change("PUT", `/v1/limits/${limit.limit_id}`, limit.etag, { limit: text.trim() === "" ? null : Number(text) });
    say("The limit holds from now on.");
    renew();
  };
  const number = text.trim() === "" ? null : Number(text);
  const same: Same = {
    command: number === null ? ["limit", "reset", limit.name] : ["limit", "set", limit.name, String(number)], method: "PUT",
    path: `/v1/limits/${limit.limit_id}`, body: { limit: number }, python: ["set_limit", limit.limit_id, number],
  };
  return (
    <Confirm title={`Set ${limit.name}`} verb="Set the limit" act={act} onClose={onClose} onConflict={renew} same={same}>
      <p className="muted">It stays whatever jobs and tasks declare ({limit.declared ?? "nothing"} now). Empty returns to what is declared.</p>
      <Field label="Runs at once" inputMode="numeric" value={text} onChange={(event) => setText(event.target.value)} />
    </Confirm>
  );
}

function Holders({ limit, onClose }: { limit: LimitView; onClose: () => void }) {
  const found = useQuery({
    queryKey: ["limit", limit.limit_id],
    queryFn: ({ signal }) => get<LimitDetails>(`/v1/limits/${limit.limit_id}`, {}, signal),
    refetchInterval: 3000,
  });
  const lines: Column<LimitDetails["lines"][number]>[] = [
    { key: "key", head: "Key", phone: "first", cell: (line) => line.key || "all" },
    { key: "held", head: "Held", align: "end", cell: (line) => plural(line.held, "run") },
    {
      key: "runs", head: "Holders",
      cell: (line) =>
        line.runs.map((run) => (
          <Link key={run} to="/runs/$run" params={{ run }} className="mono">
            {shortId(run)}{" "}
          </Link>
        )),
    },
  ];
  return (
    <Dialog title={`Who holds ${limit.name}`} onClose={onClose} wide>
      {found.data ? <Table label="Lines" columns={lines} rows={found.data.lines} rowKey={(line) => line.key} /> : <Skeleton />}
      {found.data?.lines.length === 0 ? <p className="muted">Nobody holds it, and nobody waits.</p> : null}
    </Dialog>
  );
}

function Breakers() {
  const client = useQueryClient();
  const [resetting, setResetting] = useState<BreakerView | null>(null);
  const found = useQuery({
    queryKey: ["breakers"],
    queryFn: ({ signal }) => get<BreakerList>("/v1/breakers", {}, signal),
    refetchInterval: 5000,
  });
  if (!found.data || found.data.breakers.length === 0) return null;
  const renew = (): void => void client.invalidateQueries({ queryKey: ["breakers"] });
  const reset = async (): Promise<void> => {
    if (resetting === null) return;
    await change("POST", `/v1/breakers/${resetting.breaker_id}:reset`, resetting.etag, {});
    renew();
  };
  const shown: Column<BreakerView>[] = [
    { key: "state", head: "State", phone: "first", cell: (breaker) => <StateMark state={breaker.state} /> },
    { key: "of", head: "Of", phone: "first", grow: true, cell: (breaker) => breaker.job_id ?? `task ${breaker.task}` },
    { key: "failed", head: "Failures in a row", align: "end", cell: (breaker) => `${breaker.failed} of ${breaker.failures}` },
    { key: "probe", head: "Next probe", cell: (breaker) => <Time at={breaker.probe_at} /> },
    { key: "open", head: "Opens for", phone: "none", cell: (breaker) => duration(breaker.open_for) },
    { key: "held", head: "Held", align: "end", cell: (breaker) => count(breaker.held) },
    { key: "verbs", head: <span className="sr">Verbs</span>, cell: (breaker) => (breaker.state === "closed" ? null : <Button needs="breakers.reset" icon={<RotateCcw size={14} />} onClick={() => setResetting(breaker)}>Reset</Button>) },
  ];
  return (
    <Card flush title="Circuit breakers">
      <Table label="Circuit breakers" columns={shown} rows={found.data.breakers} rowKey={(breaker) => String(breaker.breaker_id)} />
      {resetting ? (
        <Confirm
          title="Reset this circuit breaker?" verb="Reset" act={reset} onClose={() => setResetting(null)} onConflict={renew}
          same={{ command: ["breaker", "reset", String(resetting.breaker_id)], method: "POST", path: `/v1/breakers/${resetting.breaker_id}:reset`, body: {}, python: ["reset_breaker", resetting.breaker_id] }}
        >
          <p>It closes and forgets its failures. {plural(resetting.held, "held run")} may start at once.</p>
        </Confirm>
      ) : null}
    </Card>
  );
}
