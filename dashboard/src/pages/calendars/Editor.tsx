// Edits the rules beside the year and the fires that would move. Nothing is stored before the question at the end.
import { useNavigate } from "@tanstack/react-router";
import { useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import type { CalendarView } from "../../api/schema";
import { plural } from "../../lib/format";
import { Confirm } from "../../ui/Dialog";
import { ProblemBox } from "../../ui/Problem";
import { Skeleton } from "../../ui/Page";
import { say } from "../../ui/Toasts";
import { store, useProblems } from "../notifications/settings";
import styles from "./Calendars.module.css";
import { Moved } from "./Moved";
import { Rules } from "./Rules";
import { draftOf, NO_RULES, rulesOf, type RulesDraft } from "./rules";
import { usePreview } from "./usePreview";
import { Year } from "./Year";

const UNNAMED = "new"; // a preview of rules needs no calendar

export function Editor({ view, year, onLeave }: { view: CalendarView | null; year: number; onLeave: () => void }) {
  const [draft, setDraft] = useState<RulesDraft>(() => (view ? draftOf(view) : NO_RULES));
  const [name, setName] = useState(view?.name ?? "");
  const [asking, setAsking] = useState(false);
  const [seen] = useState(view?.version ?? null);
  const rules = rulesOf(draft);
  const preview = usePreview(view?.name ?? UNNAMED, year, rules);
  const refused = useProblems();
  const client = useQueryClient();
  const navigate = useNavigate();
  const problem = (field: string): string | undefined =>
    Object.entries(preview.problems).find(([path]) => path.replace(/^rules\./, "").split(/[.[]/)[0] === field)?.[1] ?? refused.of(field);
  const shown = preview.shown;
  const path = `/v1/calendars/${encodeURIComponent(name.trim())}`;
  const act = refused.watch(async () => {
    await store(path, "calendar", seen, rules);
    say(`The calendar ${name.trim()} is stored. The next fires of its jobs follow.`);
    await client.invalidateQueries({ queryKey: ["calendar"] });
    await client.invalidateQueries({ queryKey: ["calendar-preview"] });
    await navigate({ to: "/calendars/$calendar", params: { calendar: name.trim() } });
  });
  return (
    <div className={styles.sided}>
      <Rules
        draft={draft} set={(change) => setDraft({ ...draft, ...change })} problem={problem} {...(view ? {} : { name: { value: name, set: setName } })}
        onSave={() => setAsking(true)} onLeave={onLeave} busy={asking}
      />
      <div className={`${styles.stack} ${preview.current ? "" : styles.old}`} aria-busy={!preview.current}>
        {preview.failure ? <ProblemBox error={preview.failure} /> : null}
        {shown ? <Moved shown={shown} editing /> : <Skeleton />}
        {shown ? <Year shown={shown} /> : null}
      </div>
      {asking ? (
        <Confirm
          title={view ? `Change ${view.name}?` : `Create ${name.trim()}?`} verb={view ? "Change the calendar" : "Create the calendar"} act={act} operation="calendars.put"
          onClose={() => setAsking(false)} onConflict={() => void client.invalidateQueries({ queryKey: ["calendar"] })}
          same={{ command: ["calendar", "set", name.trim(), "--file", "rules.json"], method: "PUT", path, body: rules, python: ["set_calendar", name.trim(), rules] }}
        >
          <p>{shown && shown.changed > 0 ? `${plural(shown.changed, "job")} of ${shown.compared} would fire at other times. What is due fires by the old rules.` : "No fire of the jobs that were compared moves."}</p>
        </Confirm>
      ) : null}
    </div>
  );
}
