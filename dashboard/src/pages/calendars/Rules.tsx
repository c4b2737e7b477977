// The rules of a calendar: to edit, beside the year that they make.
import { Button } from "../../ui/Button";
import { Choices, Field, TextArea } from "../../ui/Field";
import { Card } from "../../ui/Page";
import type { RulesDraft } from "./rules";
import { WEEKDAYS } from "./rules";
import styles from "./Calendars.module.css";

interface Props {
  draft: RulesDraft;
  set: (change: Partial<RulesDraft>) => void;
  problem: (field: string) => string | undefined;
  name?: { value: string; set: (name: string) => void };
  onSave: () => void;
  onLeave: () => void;
  busy: boolean;
}

export function Rules({ draft, set, problem, name, onSave, onLeave, busy }: Props) {
  const text = (field: keyof RulesDraft) => ({
    value: draft[field] as string, problem: problem(field), onChange: (event: { target: { value: string } }): void => set({ [field]: event.target.value }),
  });
  return (
    <Card title="Rules">
      <form className={styles.rules} onSubmit={(event) => { event.preventDefault(); onSave(); }}>
        {name ? <Field label="Name" required placeholder="de-business" value={name.value} problem={problem("name")} onChange={(event) => name.set(event.target.value)} /> : null}
        <Choices label="Allowed weekdays" options={WEEKDAYS.map((day): [string, string] => [day, day])} chosen={draft.weekdays} problem={problem("weekdays")} onChange={(weekdays) => set({ weekdays })} />
        <Field label="Holidays" placeholder="DE-BE, AT" help="countries (ISO 3166), or a part of one, with commas" {...text("holidays")} />
        <TextArea label="Excluded dates" rows={3} placeholder={"2026-12-24\n2026-12-27..2026-12-31"} help="a day or a span on each line" {...text("dates")} />
        <TextArea label="Allowed hours" rows={2} placeholder={"09:00-17:00\nor: SAT 10:00-14:00"} help="on each allowed day, or a line for each weekday; empty: all day" {...text("hours")} />
        <TextArea label="Blackouts" rows={2} placeholder={"SUN 02:00-04:00\n2026-12-20T00:00..2026-12-21T06:00"} help="in every week, or once" {...text("blackouts")} />
        <Field label="Zone" placeholder="Europe/Berlin" help="empty: the zone of each job" {...text("timezone")} />
        <Field label="Description" {...text("description")} />
        <p className={styles.buttons}>
          <Button kind="primary" type="submit" busy={busy}>Save…</Button>
          <Button onClick={onLeave}>Leave it as it is</Button>
        </p>
      </form>
    </Card>
  );
}
