// A year as twelve months. A closed day has a mark, a word for readers, and a colour.
import type { CalendarPreview, ClosedDay } from "../../api/schema";
import { plural } from "../../lib/format";
import { useSetSearch } from "../../ui/Filters";
import { Button } from "../../ui/Button";
import { Card } from "../../ui/Page";
import legend from "../../ui/Legend.module.css";
import styles from "./Calendars.module.css";

const MONTHS = ["January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November", "December"];
const DAYS = ["Mo", "Tu", "We", "Th", "Fr", "Sa", "Su"];
const WORDS: Record<string, string> = { weekday: "not an allowed weekday", holiday: "holiday", date: "excluded date", blackout: "blackout" };

export function Year({ shown }: { shown: CalendarPreview }) {
  const set = useSetSearch();
  const closed = new Map(shown.closed.map((day) => [day.date, day]));
  const holidays = shown.closed.filter((day) => day.because === "holiday");
  const turn = (by: number): void => set({ year: String(shown.year + by) });
  return (
    <Card
      title={`${shown.year}: ${plural(shown.open_days, "open day")}`}
      aside={
        <span className={styles.turn}>
          <Button onClick={() => turn(-1)} disabled={shown.year <= 1970}><span aria-hidden="true">‹</span> {shown.year - 1}</Button>
          <Button onClick={() => turn(1)} disabled={shown.year >= 2200}>{shown.year + 1} <span aria-hidden="true">›</span></Button>
        </span>
      }
    >
      <p className={legend.legend} role="note" aria-label="Legend">
        {["open", "weekday", "holiday", "date", "blackout"].map((one) => (
          <span key={one}>
            <i className={styles[one]} aria-hidden="true" /> {one === "open" ? "open" : WORDS[one]}
          </span>
        ))}
        <span className="muted">{shown.timezone ? `Days of ${shown.timezone}.` : "Days of the zone of each job."}</span>
      </p>
      <div className={styles.year}>
        {MONTHS.map((name, month) => (
          <Month key={name} name={name} year={shown.year} month={month} closed={closed} />
        ))}
      </div>
      {holidays.length > 0 ? (
        <details className={styles.holidays}>
          <summary>{plural(holidays.length, "holiday")}</summary>
          <ul>
            {holidays.map((day) => (
              <li key={day.date}>
                <time dateTime={day.date}>{day.date}</time> {day.name}
              </li>
            ))}
          </ul>
        </details>
      ) : null}
    </Card>
  );
}

function Month({ name, year, month, closed }: { name: string; year: number; month: number; closed: ReadonlyMap<string, ClosedDay> }) {
  const first = (new Date(Date.UTC(year, month, 1)).getUTCDay() + 6) % 7;
  const days = new Date(Date.UTC(year, month + 1, 0)).getUTCDate();
  const weeks = Math.ceil((first + days) / 7);
  return (
    <table className={styles.month}>
      <caption>{name}</caption>
      <thead>
        <tr>
          {DAYS.map((day) => <th key={day} scope="col">{day}</th>)}
        </tr>
      </thead>
      <tbody>
        {Array.from({ length: weeks }, (_, week) => (
          <tr key={week}>
            {DAYS.map((weekday, column) => {
              const day = week * 7 + column - first + 1;
              if (day < 1 || day > days) return <td key={weekday} />;
              const date = `${year}-${String(month + 1).padStart(2, "0")}-${String(day).padStart(2, "0")}`;
              return <Day key={weekday} day={day} closed={closed.get(date)} />;
            })}
          </tr>
        ))}
      </tbody>
    </table>
  );
}

function Day({ day, closed }: { day: number; closed: ClosedDay | undefined }) {
  if (closed === undefined) return <td className={styles.open}>{day}</td>;
  const words = closed.name ?? WORDS[closed.because] ?? closed.because;
  return (
    <td className={`${styles[closed.because]} ${closed.partly ? styles.partly : ""}`} title={closed.partly ? `${words}, open in part` : words}>
      {day}
      <span className="sr"> {words}</span>
    </td>
  );
}
