// The one way to show a time: relative below a day, then absolute. Hover or focus shows it in each zone, to copy.
import { createContext, useContext, useEffect, useRef, useState } from "react";
import { usePreferences } from "../lib/preferences";
import { absolute, dayAndTime, LOCAL_ZONE, offset, relative, zoneOf } from "../lib/time";
import { useNow } from "../live/clock";
import { toClipboard } from "./Copy";
import styles from "./Time.module.css";

const DAY = 86_400_000;

/** The zone of the job that the page is about. */
export const JobZone = createContext<string | null>(null);

interface Props {
  at: string | null | undefined;
  /** Always the wall time, never an age. */
  exact?: boolean;
  focusable?: boolean;
  none?: string;
}

export function Time({ at, exact = false, focusable = false, none = "" }: Props) {
  const { zone } = usePreferences();
  const jobZone = useContext(JobZone);
  const moment = at ? Date.parse(at) : NaN;
  const near = Math.abs(moment - Date.now()) < 3_700_000;
  const now = useNow(near && !exact);
  if (Number.isNaN(moment)) return <>{none}</>;
  const shown = zoneOf(zone, jobZone);
  const text =
    !exact && Math.abs(moment - now) < DAY ? relative(moment, now)
    : `${dayAndTime(moment, shown)} ${offset(moment, shown)}`;
  return (
    <time dateTime={at ?? ""} data-zone={jobZone ?? ""} className={styles.time} tabIndex={focusable ? 0 : undefined}>
      {text}
    </time>
  );
}

const MOMENT = /(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d))/;

/** A sentence of the server, whose moments are shown as all others are. */
export function Words({ text }: { text: string }) {
  return <>{text.split(MOMENT).map((part, index) => (index % 2 === 1 ? <Time key={index} at={part} exact /> : part))}</>;
}

/** The card of the time under the pointer or the focus: one for the whole page. */
export function TimeCard() {
  const card = useRef<HTMLDivElement>(null);
  const [shown, setShown] = useState<{ at: number; zone: string | null } | null>(null);

  useEffect(() => {
    let wait: number | undefined;
    let keep: HTMLElement | null = null;
    const show = (event: Event): void => {
      const target = (event.target as Element).closest?.("time");
      window.clearTimeout(wait);
      if (target instanceof HTMLElement && momentOf(target) !== "") {
        wait = window.setTimeout(() => open(target), event.type === "focusin" ? 0 : 350);
      } else if (!(event.target instanceof Node && card.current?.contains(event.target))) {
        wait = window.setTimeout(close, 200);
      }
    };
    const open = (target: HTMLElement): void => {
      keep = target;
      setShown({ at: Date.parse(momentOf(target)), zone: target.dataset["zone"] || null });
      const box = card.current;
      if (box === null) return;
      box.showPopover();
      const place = target.getBoundingClientRect();
      const size = box.getBoundingClientRect();
      box.style.left = `${Math.max(8, Math.min(place.left, window.innerWidth - size.width - 8))}px`;
      const below = place.bottom + 6;
      box.style.top = `${below + size.height > window.innerHeight ? place.top - size.height - 6 : below}px`;
    };
    const close = (): void => {
      if (keep !== null && card.current?.matches(":popover-open")) card.current.hidePopover();
      keep = null;
    };
    const leave = (): void => close();
    document.addEventListener("pointerover", show);
    document.addEventListener("focusin", show);
    document.addEventListener("scroll", leave, { capture: true, passive: true });
    return () => {
      window.clearTimeout(wait);
      document.removeEventListener("pointerover", show);
      document.removeEventListener("focusin", show);
      document.removeEventListener("scroll", leave, { capture: true });
    };
  }, []);

  const zones = new Map<string, string>([["UTC", "UTC"], [LOCAL_ZONE, "here"]]);
  if (shown?.zone) zones.set(shown.zone, "job");
  return (
    <div ref={card} popover="manual" className={styles.card} role="tooltip">
      {shown === null ? null : (
        <table>
          <tbody>
            {[...zones].map(([zone, kind]) => (
              <tr key={zone}>
                <th scope="row">{zone}</th>
                <td className="muted">{zone === "UTC" ? "" : kind}</td>
                <td>{absolute(shown.at, zone)}</td>
                <td>
                  <button type="button" onClick={() => void toClipboard(new Date(shown.at).toISOString())}>
                    Copy
                  </button>
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
    </div>
  );
}

function momentOf(element: HTMLElement): string {
  return element.getAttribute("datetime") ?? "";
}
