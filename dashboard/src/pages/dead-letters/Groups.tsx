// The letters of this page by their error, so that one cause is one line.
import { Link } from "@tanstack/react-router";
import type { DeadLetterView } from "../../api/schema";
import { count, errorLine } from "../../lib/format";
import { Card } from "../../ui/Page";
import { type Column, Table } from "../../ui/Table";
import { Time } from "../../ui/Time";

interface Group {
  title: string;
  task: string;
  letters: DeadLetterView[];
}

export function Groups({ letters, more }: { letters: DeadLetterView[]; more: boolean }) {
  const groups = grouped(letters);
  if (groups.length < 2 && letters.length < 3) return null;
  return (
    <Card flush title={`By error${more ? ", of this page" : ""}`}>
      <Table label="Dead letters by error" columns={COLUMNS} rows={groups} rowKey={(group) => group.task + group.title} />
    </Card>
  );
}

const COLUMNS: Column<Group>[] = [
  {
    key: "error", head: "Error", phone: "first", grow: true,
    cell: (group) => (
      <Link to="/dead-letters" search={{ task: group.task, error: stem(group.title) }} title={group.title}>
        {group.title || "no message"}
      </Link>
    ),
  },
  { key: "task", head: "Task", cell: (group) => group.task },
  { key: "count", head: "Letters", align: "end", cell: (group) => <>{count(group.letters.length)}<span className="onPhone"> {group.letters.length === 1 ? "letter" : "letters"}</span></> },
  { key: "jobs", head: "Jobs", align: "end", phone: "none", cell: (group) => new Set(group.letters.map((letter) => letter.job_id)).size },
  { key: "last", head: "Newest", cell: (group) => <Time at={group.letters[0]?.died_at} /> },
];

/** Numbers, ids and quoted parts differ between failures with one cause. */
function masked(text: string): string {
  return text.replace(/[0-9a-f]{8}-[0-9a-f-]{27}/gi, "#").replace(/\d+/g, "#").replace(/'[^']*'|"[^"]*"/g, "'…'");
}

/** The part of the error before its first number or quote, as a filter that finds all of the group. */
function stem(title: string): string {
  return (title.match(/^[^\d'"]{4,60}/)?.[0] ?? title.slice(0, 60)).trim();
}

function grouped(letters: DeadLetterView[]): Group[] {
  const groups = new Map<string, Group>();
  for (const letter of letters) {
    const title = errorLine(letter.error_message ?? "");
    const key = `${letter.task} ${masked(title)}`;
    const group = groups.get(key) ?? { title, task: letter.task, letters: [] };
    group.letters.push(letter);
    groups.set(key, group);
  }
  return [...groups.values()].sort((a, b) => b.letters.length - a.letters.length);
}
