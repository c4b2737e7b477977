// One calendar: its year, its rules, and the jobs that use it.
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { useNavigate, useParams, useSearch } from "@tanstack/react-router";
import { Pencil, Trash2 } from "lucide-react";
import { useState } from "react";
import { change, get } from "../../api/client";
import type { CalendarView } from "../../api/schema";
import { count, plural } from "../../lib/format";
import { Button } from "../../ui/Button";
import { Confirm } from "../../ui/Dialog";
import { useSetSearch } from "../../ui/Filters";
import { Page, Skeleton } from "../../ui/Page";
import { ProblemBox } from "../../ui/Problem";
import { HistoryLink } from "../audit/HistoryLink";
import styles from "./Calendars.module.css";
import { wordsOf } from "./CalendarsPage";
import { Editor } from "./Editor";
import { Moved } from "./Moved";
import { usePreview } from "./usePreview";
import { Year } from "./Year";

export function CalendarPage() {
  const { calendar: name } = useParams({ from: "/calendars/$calendar" });
  const search = useSearch({ from: "/calendars/$calendar" });
  const set = useSetSearch();
  const path = `/v1/calendars/${encodeURIComponent(name)}`;
  const found = useQuery({ queryKey: ["calendar", name], queryFn: ({ signal }) => get<CalendarView>(path, {}, signal), refetchInterval: 10_000 });
  const view = found.data;
  const year = Number(search.year) || new Date().getUTCFullYear();
  const editing = search.edit !== undefined;
  if (view === undefined)
    return <Page title={name}>{found.isPending ? <Skeleton /> : <ProblemBox error={found.error} retry={() => void found.refetch()} />}</Page>;
  return (
    <Page
      title={view.name}
      lead={
        <>
          {view.description ? <>{view.description}. </> : null}{wordsOf(view)}.
          {view.pending ? ` ${plural(view.pending, "job")} of ${count(view.jobs ?? 0)} still follow the rules before the last change.` : ""}
        </>
      }
      actions={
        editing ? null : (
          <>
            <HistoryLink kind="calendar" id={view.name} name={view.name} />
            <Button kind="primary" needs="calendars.put" icon={<Pencil size={14} />} onClick={() => set({ edit: "1" }, true)}>Edit</Button>
            <Delete view={view} path={path} />
          </>
        )
      }
    >
      {editing ? <Editor view={view} year={year} onLeave={() => set({ edit: undefined })} /> : <Shown name={name} year={year} />}
    </Page>
  );
}

function Shown({ name, year }: { name: string; year: number }) {
  const { shown, failure } = usePreview(name, year, null);
  if (shown === undefined) return failure ? <ProblemBox error={failure} /> : <Skeleton />;
  return (
    <div className={styles.stack}>
      <Year shown={shown} />
      <Moved shown={shown} editing={false} />
    </div>
  );
}

function Delete({ view, path }: { view: CalendarView; path: string }) {
  const [seen, setSeen] = useState<number | null>(null);
  const client = useQueryClient();
  const navigate = useNavigate();
  const act = async (): Promise<void> => {
    if (seen === null) return;
    await change("DELETE", path, seen);
    await navigate({ to: "/calendars" });
    await client.invalidateQueries({ queryKey: ["list", "/v1/calendars"] });
  };
  return (
    <>
      <Button needs="calendars.delete" icon={<Trash2 size={14} />} onClick={() => setSeen(view.version)}>Delete</Button>
      {seen !== null ? (
        <Confirm
          title={`Delete ${view.name}?`} verb="Delete the calendar" danger operation="calendars.delete" act={act} onClose={() => setSeen(null)}
          same={{ command: ["calendar", "delete", view.name], method: "DELETE", path, python: ["delete_calendar", view.name] }}
        >
          <p>{view.jobs ? `${plural(view.jobs, "job")} use it, so the server refuses. Give them another calendar first.` : "No job uses it."}</p>
        </Confirm>
      ) : null}
    </>
  );
}
