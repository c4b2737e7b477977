// The letters by their error, so that one cause is one line.
import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { get } from "../../api/client";
import type { DeadLetterList, DeadLetterView } from "../../api/schema";
import { count, errorLine } from "../../lib/format";
import { Card } from "../../ui/Page";
import { type Column, Table } from "../../ui/Table";
import { Time } from "../../ui/Time";

interface Group {
  title: string;
  task: string;
  letters: DeadLetterView[];
}

const READ = 200;

/** Of the newest letters that match, whichever page of the list is shown. */
export function Groups({ filter }: { filter: Record<string, string | undefined> }) {
  const found = useQuery({
    queryKey: ["list", "/v1/dead-letters", "groups", filter],
    queryFn: ({ signal }) => get<DeadLetterList>("/v1/dead-letters", { ...filter, limit: READ }, signal),
    refetchInterval: 15_000,
    placeholderData: keepPreviousData,
  });
  const letters = found.data?.dead_letters ?? [];
  const more = found.data?.next !== null && found.data !== undefined;
  const groups = grouped(letters);
  if (groups.length < 2 && letters.length < 3) return null;
  return (
    <Card flush title={more ? `By error, of the newest ${letters.length}` : "By error"}>
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

const PARTS =
  /(?<url>(?<![a-z0-9+.-])[a-z][a-z0-9+.-]*:\/\/\S+)|(?<path>(?<![\w/])(?:~|\.{1,2}|[a-z]:)?[/\\][\w.@+-]+(?:[/\\][\w.@+-]+)*[/\\]?)|(?<id>(?<!\w)(?:[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}|0x[0-9a-f]+|(?=[a-f]*\d)[0-9a-f]{8,})(?!\w))|\d+(?:[.,:]\d+)*(?:e[+-]?\d+)?/gi;

/** Numbers, ids, paths, addresses and quoted words differ between failures with one cause. The server groups failures so too. */
function masked(text: string): string {
  const unquoted = text.replace(/'[^'\n]*'|"[^"\n]*"|`[^`\n]*`/g, "'…'");
  return unquoted.replace(PARTS, (...found) => {
    const named = found.at(-1) as Record<string, string | undefined>;
    return named["url"] ? "<url>" : named["path"] ? "<path>" : named["id"] ? "<id>" : "#";
  });
}

/** The longest part that all errors of the group have, as a filter that finds them. */
function stem(title: string): string {
  const parts = masked(title).split(/<url>|<path>|<id>|#|'…'/).map((part) => part.trim());
  return parts.reduce((best, part) => (part.length > best.length ? part : best), "").slice(0, 60);
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
