// The output of all runs, searched by words or by a regular expression, newest runs first. A line leads to its place.
import { useInfiniteQuery } from "@tanstack/react-query";
import { Link, useSearch } from "@tanstack/react-router";
import { get } from "../../api/client";
import type { LogHit, LogHits } from "../../api/schema";
import { toLine } from "../../lib/ansi";
import { shortId } from "../../lib/format";
import { Button } from "../../ui/Button";
import { ChoiceFilter, Filters, TextFilter } from "../../ui/Filters";
import { Card, Empty, Page, Skeleton } from "../../ui/Page";
import { ProblemBox } from "../../ui/Problem";
import { StateMark } from "../../ui/StateMark";
import { Time } from "../../ui/Time";
import { TimeRange, useRange } from "../../ui/TimeRange";
import styles from "./LogsPage.module.css";

const FILTERS = ["job", "task", "queue", "worker", "status", "label"] as const;
const ACTIVE = ["text", "by", ...FILTERS, "w", "since", "until"] as const;
const WAYS: [string, string][] = [["part", "Parts of words"], ["regex", "Regular expression"]];
const STATES: [string, string][] = [["FAILED", "Failed"], ["SUCCESS", "Succeeded"], ["RUNNING", "Running"], ["CANCELLED", "Cancelled"]];
const A_DAY = "24h";

export function LogsPage() {
  const search = useSearch({ from: "/logs" });
  const range = useRange(search.since === undefined && search.until === undefined ? { ...search, w: search.w ?? A_DAY } : search);
  const text = search.text ?? "";
  const way = search.by === "regex" ? { regex: text } : { text, inside_words: search.by === "part" ? true : undefined };
  const query = { ...way, ...Object.fromEntries(FILTERS.map((name) => [name, search[name]])), ...range, limit: 20 };
  const found = useInfiniteQuery({
    queryKey: ["logs", query],
    queryFn: ({ signal, pageParam }) => get<LogHits>("/v1/logs", { ...query, cursor: pageParam }, signal),
    initialPageParam: undefined as string | undefined,
    getNextPageParam: (page) => page.next ?? undefined,
    enabled: text !== "", retry: false, refetchOnWindowFocus: false,
  });
  const hits = found.data?.pages.flatMap((page) => page.hits) ?? [];
  const searchedTo = found.data?.pages.at(-1)?.searched_to;
  const active = ACTIVE.filter((name) => search[name] !== undefined);
  return (
    <Page title="Logs" lead="What runs have printed, newest runs first.">
      <TimeRange search={search} usual={A_DAY} />
      <Filters active={active}>
        <TextFilter name="text" value={search.text} label="Words in the output" wide />
        <ChoiceFilter name="by" value={search.by} label="Find" options={WAYS} none="whole words" />
        <TextFilter name="job" value={search.job} label="Job id" />
        <TextFilter name="task" value={search.task} label="Task" />
        <TextFilter name="queue" value={search.queue} label="Queue" />
        <TextFilter name="worker" value={search.worker} label="Worker id" />
        <ChoiceFilter name="status" value={search.status} label="State" options={STATES} />
        <TextFilter name="label" value={search.label} label="Label, key=value" />
      </Filters>
      {text === "" ? (
        <Card>
          <Empty title="Which words?" command={"mainspring logs --search 'connection refused' --since 1d"}>
            Type words that a run has printed. The same in a terminal:
          </Empty>
        </Card>
      ) : found.isPending ? (
        <Skeleton lines={8} />
      ) : found.data === undefined ? (
        <ProblemBox error={found.error} retry={() => void found.refetch()} />
      ) : (
        <>
          {hits.length === 0 && !found.hasNextPage ? <Card><Empty title="No line matches.">Look further back, or for parts of words.</Empty></Card> : null}
          <ol className={styles.hits} aria-label="Runs whose output matches">
            {hits.map((hit) => (
              <Hit key={`${hit.run_id} ${hit.attempt}`} hit={hit} find={search.by === "regex" ? undefined : text} />
            ))}
          </ol>
          {found.error ? <ProblemBox error={found.error} /> : null}
          {found.hasNextPage ? (
            <p className={styles.more}>
              {searchedTo ? <span>Looked back to <Time at={searchedTo} exact />. </span> : null}
              <Button busy={found.isFetchingNextPage} onClick={() => void found.fetchNextPage()}>Look further</Button>
            </p>
          ) : null}
        </>
      )}
    </Page>
  );
}

function Hit({ hit, find }: { hit: LogHit; find: string | undefined }) {
  return (
    <li className={styles.hit}>
      <p className={styles.head}>
        <StateMark state={hit.status} />
        <Link to="/jobs/$job" params={{ job: hit.job_id }} className="cut">{hit.name}</Link>
        <Link to="/runs/$run" params={{ run: hit.run_id }} search={find ? { find } : {}} className="mono" title={hit.run_id}>{shortId(hit.run_id)}</Link>
        <span className="muted">{hit.task}, attempt {hit.attempt}, <Time at={hit.printed_at} /></span>
      </p>
      <ul className={styles.lines}>
        {hit.lines.map((line) => (
          <li key={line.start}>
            <Link to="/runs/$run" params={{ run: hit.run_id }} search={{ attempt: String(hit.attempt), at: String(line.start) }}>
              {toLine(line.text).plain}
            </Link>
          </li>
        ))}
        {hit.more ? <li className="muted">and further lines</li> : null}
      </ul>
    </li>
  );
}
