// The jobs that use a calendar, and which of their fires other rules would move.
import { Link } from "@tanstack/react-router";
import type { CalendarPreview, MovedFires } from "../../api/schema";
import { count, plural } from "../../lib/format";
import { Card, Empty } from "../../ui/Page";
import { type Column, Table } from "../../ui/Table";
import { Time } from "../../ui/Time";

const JOB: Column<MovedFires> = {
  key: "job", head: "Job", phone: "first", grow: true,
  cell: (one) => <Link to="/jobs/$job" params={{ job: one.job_id }}>{one.job_id}</Link>,
};
const SCHEDULE: Column<MovedFires> = { key: "schedule", head: "Schedule", cell: (one) => <span className="short" title={one.schedule}>{one.schedule}</span>, room: 1 };
const NEXT: Column<MovedFires> = { key: "next", head: "Next fire", cell: (one) => (one.paused ? <span className="muted">paused</span> : <Time at={one.next_fire_at} />) };
const USES = [JOB, SCHEDULE, NEXT];
const MOVES: Column<MovedFires>[] = [
  JOB,
  { key: "go", head: "Fires that go", cell: (one) => <Fires number={one.go} first={one.going[0]} word="go" /> },
  { key: "come", head: "Fires that come", cell: (one) => <Fires number={one.come} first={one.coming[0]} word="come" /> },
  NEXT,
];

function Fires({ number, first, word }: { number: number; first: string | undefined; word: string }) {
  if (number === 0) return <span className="muted">none <span className="onPhone">{word}</span></span>;
  return <>{count(number)}<span className="onPhone"> {word}</span>{first ? <span className="muted">, first <Time at={first} exact /></span> : null}</>;
}

export function Moved({ shown, editing }: { shown: CalendarPreview; editing: boolean }) {
  const { compared, changed, jobs } = shown;
  if (jobs === 0)
    return editing ? null : (
      <Card title="Jobs">
        <Empty title="No job uses it yet" command={`mainspring submit --command 'echo hello' --cron '0 9 * * *' --calendar ${shown.name} --name hello`}>
          A job that recurs names its calendar:
        </Empty>
      </Card>
    );
  const rows = editing ? shown.moved.filter((one) => one.go + one.come > 0) : shown.moved;
  const title = !editing ? `${plural(jobs, "job")} use it`.replace("1 job use", "1 job uses") : changed === 0 ? "No fire moves" : `${plural(changed, "job")} would fire at other times`;
  return (
    <Card flush={rows.length > 0} title={title} aside={<span className="muted">{compared < jobs ? `${count(compared)} of ${count(jobs)} were compared` : editing ? "in the next 366 days" : null}</span>}>
      {rows.length > 0 ? <Table label="Jobs of the calendar" columns={editing ? MOVES : USES} rows={rows} rowKey={(one) => one.job_id} /> : <p className="muted">Each of the {plural(compared, "job")} keeps its fires of the next 366 days.</p>}
      {rows.length < (editing ? changed : jobs) ? <p className="muted">Only the first {count(rows.length)} are listed.</p> : null}
    </Card>
  );
}
