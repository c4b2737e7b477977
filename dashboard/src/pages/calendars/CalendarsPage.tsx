import { Link, useSearch } from "@tanstack/react-router";
import { Plus } from "lucide-react";
import type { CalendarList, CalendarView } from "../../api/schema";
import { Button } from "../../ui/Button";
import { useSetSearch } from "../../ui/Filters";
import { List } from "../../ui/List";
import { Card, Empty, Page } from "../../ui/Page";
import type { Column } from "../../ui/Table";
import { Time } from "../../ui/Time";
import { useKeyset } from "../../ui/useKeyset";
import { Editor } from "./Editor";
import { draftOf, WEEKDAYS } from "./rules";

const COLUMNS: Column<CalendarView>[] = [
  { key: "name", head: "Calendar", phone: "first", cell: (one) => <Link to="/calendars/$calendar" params={{ calendar: one.name }}>{one.name}</Link> },
  { key: "rules", head: "Rules", grow: true, cell: (one) => <span title={wordsOf(one)}>{wordsOf(one)}</span> },
  { key: "zone", head: "Zone", phone: "none", room: 1, cell: (one) => one.timezone ?? <span className="muted">of the job</span> },
  { key: "changed", head: "Changed", phone: "none", room: 1, cell: (one) => <Time at={one.updated_at} /> },
];

/** MON to FRI, without holidays of DE-BE, 2 dates, 1 blackout. */
export function wordsOf(view: CalendarView): string {
  const draft = draftOf(view);
  const days = draft.weekdays.length === WEEKDAYS.length ? "every day" : draft.weekdays.join(" ");
  const without = [
    draft.holidays ? `holidays of ${draft.holidays}` : "", draft.dates ? `${draft.dates.split("\n").length} dates` : "",
    draft.blackouts ? `${draft.blackouts.split("\n").length} blackouts` : "",
  ].filter((one) => one !== "");
  return `${days}${draft.hours ? `, ${draft.hours.replaceAll("\n", ", ")}` : ""}${without.length > 0 ? `; without ${without.join(", ").replace(/\b1 (date|blackout)s/g, "1 $1")}` : ""}`;
}

export function CalendarsPage() {
  const search = useSearch({ from: "/calendars" });
  const set = useSetSearch();
  const list = useKeyset<CalendarList, CalendarView>({
    path: "/v1/calendars", query: {}, after: search.after, rows: (body) => body.calendars, next: (body) => body.next, id: (one) => one.name, everyMs: 15_000,
  });
  const creating = search.create !== undefined;
  return (
    <Page
      title={creating ? "Create a calendar" : "Calendars"} lead="Days and times at which schedules may fire: weekdays, holidays, dates, hours, blackouts."
      actions={creating ? null : <Button kind="primary" needs="calendars.put" icon={<Plus size={14} />} onClick={() => set({ create: "1" }, true)}>Create a calendar</Button>}
    >
      {creating ? (
        <Editor view={null} year={Number(search.year) || new Date().getUTCFullYear()} onLeave={() => set({ create: undefined, year: undefined })} />
      ) : (
        <Card flush>
          <List
            label="Calendars" list={list} after={search.after} rowKey={(one) => one.name} columns={COLUMNS}
            empty={
              <Empty title="No calendars yet" command="mainspring calendar set de-business --holidays DE-BE --weekdays MON-FRI">
                A calendar keeps jobs from firing on holidays and at weekends. Create one here, or with:
              </Empty>
            }
          />
        </Card>
      )}
    </Page>
  );
}
