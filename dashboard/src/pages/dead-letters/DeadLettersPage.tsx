import { useQueryClient } from "@tanstack/react-query";
import { Link, useSearch } from "@tanstack/react-router";
import { RotateCcw, Trash2 } from "lucide-react";
import { useState } from "react";
import { ActDialog } from "../../bulk/ActDialog";
import { type Verb, VERBS } from "../../bulk/acts";
import { BulkBar } from "../../bulk/BulkBar";
import { useSelection } from "../../bulk/useSelection";
import { useTotal } from "../../bulk/useTotal";
import type { DeadLetterList, DeadLetterView } from "../../api/schema";
import { useMay } from "../../api/session";
import { errorLine, plain, shortId } from "../../lib/format";
import { Button } from "../../ui/Button";
import { Filters, TextFilter } from "../../ui/Filters";
import { List } from "../../ui/List";
import { Card, Empty, Page } from "../../ui/Page";
import type { Column } from "../../ui/Table";
import { Time } from "../../ui/Time";
import { TimeRange, useRange } from "../../ui/TimeRange";
import { useKeyset } from "../../ui/useKeyset";
import { Replay } from "../run/RunActions";
import { Groups } from "./Groups";

const idOf = (letter: DeadLetterView): string => letter.run_id;
const nameOf = (letter: DeadLetterView): string => `${letter.name} ${shortId(letter.run_id)}`;
const FILTERS = ["job", "task", "queue", "error"] as const;
const RANGE = ["w", "since", "until"] as const;

export function DeadLettersPage() {
  const search = useSearch({ from: "/dead-letters" });
  const client = useQueryClient();
  const [replaying, setReplaying] = useState<DeadLetterView | null>(null);
  const [many, setMany] = useState<Verb | null>(null);
  const { since, until } = useRange(search);
  const given: Record<string, string | undefined> = { ...Object.fromEntries(FILTERS.map((name) => [name, search[name]])), since, until };
  const filter = Object.fromEntries(Object.entries(given).filter(([, value]) => value !== undefined));
  const list = useKeyset<DeadLetterList, DeadLetterView>({
    path: "/v1/dead-letters", query: filter, after: search.after, rows: (body) => body.dead_letters, next: (body) => body.next,
    id: (letter) => letter.run_id,
  });
  const active = [...FILTERS, ...RANGE].filter((name) => search[name] !== undefined);
  const total = useTotal("dead-letters", filter, list, search.after);
  const mayAct = useMay("dead_letters.act");
  const selection = useSelection(list.rows, filter, idOf, nameOf);
  const some = list.rows.length > 0;
  return (
    <Page
      title="Dead letters"
      lead="Runs that failed for good, kept with their payloads until somebody replays or discards them."
      actions={
        some ? (
          <>
            {VERBS["dead-letters"].map((verb) => (
              <Button key={verb.name} needs="dead_letters.act" icon={verb.danger ? <Trash2 size={14} /> : <RotateCcw size={14} />} onClick={() => setMany(verb)}>
                {active.length > 0 ? `${verb.label} these` : `${verb.label} all`}
              </Button>
            ))}
          </>
        ) : null
      }
    >
      <TimeRange search={search} />
      <Filters active={active}>
        <TextFilter name="error" value={search.error} label="Error contains" wide />
        <TextFilter name="task" value={search.task} label="Task" />
        <TextFilter name="job" value={search.job} label="Job id" />
        <TextFilter name="queue" value={search.queue} label="Queue" />
      </Filters>
      {some ? <Groups filter={filter} /> : null}
      <BulkBar target="dead-letters" selection={selection} filter={filter} id={idOf} name={nameOf} />
      <Card flush title="Letters">
        <List
          label="Dead letters" list={list} after={search.after} total={total} rowKey={idOf} marked={selection.has}
          columns={[...(mayAct ? [selection.column] : []), ...columns(setReplaying)]}
          empty={
            active.length > 0 ? (
              <Empty title="No dead letter matches.">Clear the filters to see all dead letters.</Empty>
            ) : (
              <Empty title="No dead letters" command="mainspring dead-letter list">
                Runs that fail after their last attempt come here, and to the list of the command line:
              </Empty>
            )
          }
        />
      </Card>
      {replaying ? (
        <Replay
          run={replaying} path={`/v1/dead-letters/${replaying.run_id}:replay`} id={replaying.run_id} dead seen={replaying.etag} onClose={() => setReplaying(null)}
          onConflict={() => void client.invalidateQueries({ queryKey: ["list", "/v1/dead-letters"] })}
        />
      ) : null}
      {many ? <ActDialog target="dead-letters" verb={many} chosen={{ filter }} onClose={() => setMany(null)} /> : null}
    </Page>
  );
}

function columns(replay: (letter: DeadLetterView) => void): Column<DeadLetterView>[] {
  return [
    {
      key: "run", head: "Run", phone: "first",
      cell: (letter) => (
        <Link to="/runs/$run" params={{ run: letter.run_id }} className="mono" title={letter.run_id}>
          {shortId(letter.run_id)}
        </Link>
      ),
    },
    {
      key: "job", head: "Job", phone: "first", grow: true,
      cell: (letter) => (
        <Link to="/jobs/$job" params={{ job: letter.job_id }}>
          {letter.name}
        </Link>
      ),
    },
    { key: "task", head: "Task", phone: "none", cut: true, room: 1, cell: (letter) => letter.task },
    { key: "error", head: "Error", grow: true, cell: (letter) => <span title={plain(letter.error_message ?? "")}>{errorLine(letter.error_message ?? "")}</span> },
    { key: "attempts", head: "Attempts", align: "end", phone: "none", room: 2, cell: (letter) => letter.attempts },
    { key: "died", head: "Died", cell: (letter) => <Time at={letter.died_at} /> },
    {
      key: "verbs", head: <span className="sr">Verbs</span>, phone: "first",
      cell: (letter) => (
        <Button needs="dead_letters.replay" icon={<RotateCcw size={14} />} onClick={() => replay(letter)} aria-label={`Replay ${letter.name} ${shortId(letter.run_id)}`}>
          Replay
        </Button>
      ),
    },
  ];
}
