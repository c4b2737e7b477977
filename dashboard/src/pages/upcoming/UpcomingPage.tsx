import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { Link, useSearch } from "@tanstack/react-router";
import { X } from "lucide-react";
import { get } from "../../api/client";
import type { HeatMap, PileUp, UpcomingFires } from "../../api/schema";
import { count, counted, plural } from "../../lib/format";
import { usePreferences } from "../../lib/preferences";
import { zoneOf } from "../../lib/time";
import { Button } from "../../ui/Button";
import { useSetSearch } from "../../ui/Filters";
import { Card, Empty, Page, Skeleton } from "../../ui/Page";
import { ProblemBox } from "../../ui/Problem";
import { Choice } from "../../ui/Tabs";
import { Time } from "../../ui/Time";
import styles from "./Upcoming.module.css";
import { Heat } from "./Heat";

type Range = "day" | "week";

export function UpcomingPage() {
  const search = useSearch({ from: "/upcoming" });
  const range: Range = search.range === "day" ? "day" : "week";
  const set = useSetSearch();
  const { zone } = usePreferences();
  const timezone = zoneOf(zone);
  const found = useQuery({
    queryKey: ["heat", range, timezone],
    queryFn: ({ signal }) => get<HeatMap>("/v1/insights/heatmap", { range, timezone }, signal),
    refetchInterval: 60_000,
    placeholderData: keepPreviousData,
  });
  const map = found.data;
  return (
    <Page title="Upcoming fires" lead="When jobs will fire, if nobody pauses or changes them, and where they pile up.">
      <Choice<Range> label="Range" value={range} options={[["week", "Next week"], ["day", "Next 24 hours"]]} onChange={(next) => set({ range: next }, true)} />
      {found.isPending ? <Skeleton /> : null}
      {map === undefined && found.error ? <ProblemBox error={found.error} retry={() => void found.refetch()} /> : null}
      {map ? (
        <>
          <Card title={`${counted(map.fires, map.estimated)} fires of ${plural(map.jobs, "job")}, in ${map.timezone}`} aside={<span className="muted">counted <Time at={map.as_of} /></span>}>
            {map.fires === 0 ? (
              <Empty title="Nothing fires" command={"mainspring submit --command 'echo hello' --cron '0 9 * * *' --name hello"}>
                No schedule fires in this range.
              </Empty>
            ) : (
              <Heat map={map} />
            )}
          </Card>
          {search.at ? <Cell at={search.at} minutes={map.range === "week" ? 60 : 5} /> : null}
          {map.pile_ups.length > 0 ? (
            <Card title="Pile-ups">
              <ol className={styles.piles}>
                {map.pile_ups.map((pile) => (
                  <Pile key={pile.at} pile={pile} />
                ))}
              </ol>
            </Card>
          ) : null}
        </>
      ) : null}
    </Page>
  );
}

function Pile({ pile }: { pile: PileUp }) {
  return (
    <li>
      <strong>
        <Time at={pile.at} exact focusable />: {plural(pile.fires, "fire")} in one minute
      </strong>
      <ul>
        {pile.by.map((part) => (
          <li key={part.schedule + (part.timezone ?? "")}>
            {count(part.fires)} by <code>{part.schedule}</code> {part.timezone} of {plural(part.jobs, "job")}:{" "}
            {part.job_ids.slice(0, 3).map((job) => (
              <span key={job} className={styles.job}>
                <Link to="/jobs/$job" params={{ job }}>
                  {job}
                </Link>{" "}
                (<Link to="/jobs/new" search={{ edit: job }} aria-label={`Move ${job}`}>move</Link>)
              </span>
            ))}
            {part.spread ? (
              <span className="muted">
                {part.spread.reason}
                {part.spread.cron ? <> Write <code>{part.spread.cron}</code></> : null}
                {part.spread.jitter ? <> or jitter <code>{part.spread.jitter}</code></> : null}
              </span>
            ) : null}
          </li>
        ))}
      </ul>
    </li>
  );
}

const PARTS = 4;
const MOST_OF_PART = 200;

/** The fires of one cell, each job once. Those that fire seldom come first: they can be moved. Jobs that fire all the time
 * would fill a single page, so each quarter has one of its own. */
function Cell({ at, minutes }: { at: string; minutes: number }) {
  const set = useSetSearch();
  const start = Date.parse(at);
  const part = (minutes * 60_000) / PARTS;
  const found = useQuery({
    queryKey: ["fires-of-cell", at, minutes],
    queryFn: async ({ signal }) => {
      const from = (index: number): string => new Date(start + index * part).toISOString();
      const parts = Array.from({ length: PARTS }, (_, index) => get<UpcomingFires>("/v1/insights/upcoming", { from: from(index), to: from(index + 1), limit: MOST_OF_PART }, signal));
      const pages = await Promise.all(parts);
      return { fires: pages.flatMap((page) => page.fires), more: pages.some((page) => page.next) };
    },
  });
  const jobs = new Map<string, { name: string; first: string; schedule: string; fires: number }>();
  for (const fire of found.data?.fires ?? []) {
    const known = jobs.get(fire.job_id);
    jobs.set(fire.job_id, { name: fire.name, first: known?.first ?? fire.at, schedule: fire.schedule, fires: (known?.fires ?? 0) + 1 });
  }
  return (
    <Card
      title={<>Fires of the {minutes === 60 ? "hour" : "five minutes"} from <Time at={at} exact focusable /></>}
      aside={<Button kind="quiet" icon={<X size={14} />} aria-label="Close" onClick={() => set({ at: undefined })} />}
    >
      {found.isPending ? <Skeleton lines={3} /> : null}
      {found.error ? <ProblemBox error={found.error} retry={() => void found.refetch()} /> : null}
      <ul className={styles.cell} aria-label="Jobs that fire">
        {[...jobs].sort(([, a], [, b]) => a.fires - b.fires).map(([job, { name, first, schedule, fires }]) => (
          <li key={job}>
            <Link to="/jobs/$job" params={{ job }} className="wrap">{name}</Link>
            <span className="muted">{fires > 1 ? `${count(fires)} times` : <Time at={first} exact />}, {schedule}</span>
            <Link to="/jobs/new" search={{ edit: job }} aria-label={`Move ${name}`}>Move</Link>
          </li>
        ))}
      </ul>
      {found.data?.more ? <p className="muted">Of each quarter only the first {MOST_OF_PART} fires are counted.</p> : null}
    </Card>
  );
}
