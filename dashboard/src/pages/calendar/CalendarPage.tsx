import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { Link, useSearch } from "@tanstack/react-router";
import { get } from "../../api/client";
import type { HeatMap, PileUp } from "../../api/schema";
import { count, counted, plural } from "../../lib/format";
import { usePreferences } from "../../lib/preferences";
import { zoneOf } from "../../lib/time";
import { useSetSearch } from "../../ui/Filters";
import { Card, Empty, Page, Skeleton } from "../../ui/Page";
import { ProblemBox } from "../../ui/Problem";
import { Choice } from "../../ui/Tabs";
import { Time } from "../../ui/Time";
import styles from "./Calendar.module.css";
import { Heat } from "./Heat";

type Range = "day" | "week";

export function CalendarPage() {
  const search = useSearch({ from: "/calendar" });
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
    <Page title="Calendar" lead="When jobs will fire, if nobody pauses or changes them, and where they pile up.">
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
              <Link key={job} to="/jobs/$job" params={{ job }} className={styles.job}>
                {job}
              </Link>
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
