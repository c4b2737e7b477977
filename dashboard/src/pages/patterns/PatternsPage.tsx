// Every pattern and component of the pages, with data that stays the same: list, detail, verdict, chart, form, empty, error.
// It is in development builds alone, and `make screenshots` takes pictures of it in both themes.
import { Play, Trash2 } from "lucide-react";
import { useState } from "react";
import { Refused } from "../../api/client";
import type { Overview, Problem } from "../../api/schema";
import { duration } from "../../lib/format";
import { AsCommand } from "../../ui/AsCommand";
import { Button } from "../../ui/Button";
import { Chart } from "../../ui/Chart";
import charts from "../../ui/Chart.module.css";
import { Copy } from "../../ui/Copy";
import { Confirm } from "../../ui/Dialog";
import { Choices, Field, Select, TextArea } from "../../ui/Field";
import { ChoiceFilter, Filters, TextFilter } from "../../ui/Filters";
import { Json } from "../../ui/Json";
import { Meter } from "../../ui/Meter";
import { Card, Empty, Facts, Figure, Figures, Page, Skeleton } from "../../ui/Page";
import { PayloadEditor } from "../../ui/PayloadEditor";
import { ProblemBox } from "../../ui/Problem";
import { RunBars } from "../../ui/RunBars";
import { Spark } from "../../ui/Spark";
import { StateMark } from "../../ui/StateMark";
import { type Column, Table } from "../../ui/Table";
import { Choice, Tabs } from "../../ui/Tabs";
import { Time } from "../../ui/Time";
import { say } from "../../ui/Toasts";
import { VerdictBox } from "../overview/VerdictBox";

const AT = "2026-03-16T08:00:00Z";
const STATES = [
  "SUCCESS", "FAILED", "RUNNING", "HELD", "MISSED", "QUEUED", "SCHEDULED", "WAITING", "CANCELLED", "SKIPPED", "LOST", "DRAINING", "PAUSED", "LIVE", "NO_WORKER",
  "COMPLETED", "HEALTHY", "LATE", "FAILING", "SILENT",
];
const TIMES = Array.from({ length: 24 }, (_, index) => new Date(Date.parse(AT) + index * 300_000).toISOString());
const VALUES = TIMES.map((_, index) => 20 + 15 * Math.sin(index / 3));
const REFUSED = new Refused({
  type: "about:blank", title: "Invalid request", status: 422, code: "invalid_request", detail: "'9 *' is not a cron line", hint: "It needs five fields, such as 0 9 * * *.",
  errors: [{ field: "schedule.cron", detail: "it has 2 fields" }],
} as unknown as Problem);

interface Row {
  id: string;
  state: string;
  ran: number | null;
  error: string;
}

const ROWS: Row[] = [
  { id: "…f0a8b1", state: "FAILED", ran: 1.32, error: "SMTPServerDisconnected: connection closed" },
  { id: "…11c02e", state: "SUCCESS", ran: 0.041, error: "" },
  { id: "…9d3377", state: "RUNNING", ran: null, error: "" },
];
const COLUMNS: Column<Row>[] = [
  { key: "state", head: "State", phone: "first", by: (row) => row.state, cell: (row) => <StateMark state={row.state} /> },
  { key: "run", head: "Run", phone: "first", cell: (row) => <span className="mono">{row.id}</span> },
  { key: "for", head: "Scheduled for", cell: () => <Time at={AT} exact /> },
  { key: "ran", head: "Ran", align: "end", by: (row) => row.ran, cell: (row) => duration(row.ran) },
  { key: "error", head: "Error", grow: true, cell: (row) => row.error },
  { key: "verbs", head: <span className="sr">Verbs</span>, cell: () => <Button icon={<Play size={14} />}>Retry</Button> },
];

function verdict(level: "ok" | "warning" | "critical", text: string): Overview {
  return { verdict: { level, text, since: level === "ok" ? null : AT }, problems: level === "ok" ? [] : [text], paused: [], warnings: [] } as unknown as Overview;
}

export function PatternsPage() {
  const [kind, setKind] = useState("one");
  const [days, setDays] = useState(["MON"]);
  const [payload, setPayload] = useState('{"account": "a1", "cents": 1999}');
  const [asking, setAsking] = useState(false);
  return (
    <Page
      title="Patterns" lead="What every page is made of. Development builds alone have it."
      actions={<><Button kind="primary" icon={<Play size={14} />} onClick={() => say("It runs.")}>Primary</Button><Button>Plain</Button><Button kind="danger" icon={<Trash2 size={14} />} onClick={() => setAsking(true)}>Danger</Button><Button kind="quiet">Quiet</Button><Button busy>Busy</Button><Button disabled>Disabled</Button></>}
    >
      <VerdictBox overview={verdict("ok", "All is well.")} />
      <VerdictBox overview={verdict("warning", "Queue mail falls behind: its oldest run waits for 6 min.")} />
      <VerdictBox overview={verdict("critical", "2 workers are lost.")} />
      <Figures>
        <Figure label="Ended" value="1,204/s" note="24 h" />
        <Figure label="Succeeded" value="99.2%" />
        <Figure label="Waiting" value="18,212" tone="held" note="oldest 6 min" />
        <Figure label="Dead letters" value="8,114" tone="failed" />
      </Figures>
      <Card title="States"><p>{STATES.map((state) => <span key={state}><StateMark state={state} />{" "}</span>)}</p></Card>
      <Tabs label="Patterns" name="tab" value="one" tabs={[["one", "Chosen"], ["two", "Another"]]} />
      <Filters active={["q"]}>
        <TextFilter name="q" value="billing" label="Name or id" wide />
        <ChoiceFilter name="status" value={undefined} label="State" options={[["FAILED", "Failed"]]} />
      </Filters>
      <Card flush title="List"><Table label="Example runs" columns={COLUMNS} rows={ROWS} rowKey={(row) => row.id} marked={(row) => row.state === "RUNNING"} /></Card>
      <Card title="Detail" aside={<Copy text="copied" label="Copy" />}>
        <Facts rows={[["Schedule", "At 09:00 on weekdays"], ["Queue", "mail"], ["Owner", ""], ["Scheduled for", <Time key="at" at={AT} exact />]]} />
        <Json value={{ account: "a1", cents: 1999 }} label="payload" />
        <Meter label="Done" total={10} good={6} going={2} bad={1}>6 of 10</Meter> <Spark values={[1, 4, 2, 8, 5]} label="20 over time" />
        <RunBars label="Last runs" runs={ROWS.map((row) => ({ run_id: row.id, status: row.state, duration: row.ran, scheduled_for: AT }))} />
        <AsCommand same={{ command: ["job", "run", "billing.monthly"], method: "POST", path: "/v1/jobs/billing.monthly:runNow", body: {}, python: ["run_now", "billing.monthly"] }} />
      </Card>
      <Card title="Charts">
        <div className={charts.inCard}>
          <Chart title="Ended" at={TIMES} sync="patterns" format={(value) => value.toFixed(0)} lines={[{ label: "succeeded", values: VALUES, color: "success", area: true }, { label: "failed", values: VALUES.map((value) => value / 8), color: "failed" }]} />
          <Chart title="Nothing" at={TIMES} sync="patterns" format={duration} lines={[{ label: "p50", values: VALUES.map(() => null), color: "accent" }]} />
        </div>
      </Card>
      <Card title="Form">
        <Choice label="Kind" value={kind} options={[["one", "One"], ["two", "Two"]]} onChange={setKind} />
        <Field label="Name" help="what people call it" defaultValue="Daily report" />
        <Field label="Cron line" problem="'9 *' is not a cron line. It needs five fields." defaultValue="9 *" />
        <Select label="When late" options={[["run", "run once"], ["skip", "skip"]]} />
        <Choices label="Weekdays" options={[["MON", "MON"], ["TUE", "TUE"]]} chosen={days} onChange={setDays} />
        <TextArea label="Command" rows={2} defaultValue="python report.py" />
        <PayloadEditor schema={{ properties: { account: { type: "string" }, cents: { type: "integer" } }, required: ["account"] }} text={payload} onChange={setPayload} />
      </Card>
      <Card flush><Empty title="No jobs yet" command="mainspring submit --command 'echo hello'">A job says what to run and when:</Empty></Card>
      <ProblemBox error={REFUSED} retry={() => undefined} />
      <Card title="Loading"><Skeleton lines={3} /></Card>
      {asking ? <Confirm title="Cancel billing.monthly?" verb="Cancel the job" danger act={() => Promise.resolve()} onClose={() => setAsking(false)}><p>It fires no more, and its live runs are stopped.</p></Confirm> : null}
    </Page>
  );
}
