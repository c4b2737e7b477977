// Keys: they do nothing in fields and dialogs, and can be switched off in the settings.
import { useNavigate } from "@tanstack/react-router";
import { useEffect, useRef } from "react";
import { prefer, preferences } from "../lib/preferences";
import { Dialog } from "../ui/Dialog";
import styles from "./Keys.module.css";
import { PLACES } from "./places";

const HELP: [string, string][] = [
  ["Ctrl K", "search jobs, runs, pages"],
  ["?", "this help"],
  ["/", "the filter of the list"],
  ["j  k", "next, previous row"],
  ["Enter", "open the row"],
  ["x", "select the row"],
  ["[  ]", "older, newer run of the job"],
  ["l", "the log of the run"],
  ["f", "the end of the log, and follow it"],
  ["n  N", "next, previous match in the log"],
  [".", "pause or resume the job or the queue"],
  ["t", "next time zone"],
];

export function Keys({ help, onHelp, onSearch }: {
  help: boolean; onHelp: (shown: boolean) => void; onSearch: () => void;
}) {
  const navigate = useNavigate();
  const going = useRef(0);
  useEffect(() => {
    const press = (event: KeyboardEvent): void => {
      if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") {
        event.preventDefault();
        onSearch();
        return;
      }
      if (!preferences().keys || event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target)) return;
      if (Date.now() - going.current < 1200) {
        going.current = 0;
        const place = PLACES.find((one) => one.key === event.key);
        if (place !== undefined) {
          event.preventDefault();
          void navigate({ to: place.to });
        }
        return;
      }
      const act = ACTS[event.key];
      if (event.key === "g") going.current = Date.now();
      else if (event.key === "?") onHelp(true);
      else if (act !== undefined && act()) event.preventDefault();
    };
    document.addEventListener("keydown", press);
    return () => document.removeEventListener("keydown", press);
  }, [navigate, onHelp, onSearch]);
  if (!help) return null;
  return (
    <Dialog title="Keys" onClose={() => onHelp(false)}>
      <dl className={styles.keys}>
        {[...HELP, ...PLACES.map((place): [string, string] => [`g ${place.key}`, place.name])].map(([key, text]) => (
          <div key={key}>
            <dt>
              <kbd>{key}</kbd>
            </dt>
            <dd>{text}</dd>
          </div>
        ))}
      </dl>
    </Dialog>
  );
}

const ACTS: Record<string, () => boolean> = {
  "/": () => focus(document.querySelector<HTMLElement>("[data-filter]")),
  j: () => move(1),
  k: () => move(-1),
  x: () => press(currentRow()?.querySelector<HTMLElement>("input[type=checkbox]")),
  "[": () => press(document.querySelector<HTMLElement>("[data-key='[']")),
  "]": () => press(document.querySelector<HTMLElement>("[data-key=']']")),
  l: () => press(document.querySelector<HTMLElement>("[data-key='l']")),
  f: () => press(document.querySelector<HTMLElement>("[data-key='f']")),
  n: () => press(document.querySelector<HTMLElement>("[data-key='n']")),
  N: () => press(document.querySelector<HTMLElement>("[data-key='N']")),
  ".": () => press(document.querySelector<HTMLElement>("[data-key='.']")),
  t: () => {
    const { zone, ownZone } = preferences();
    const zones = ["utc", "local", "job", ...(ownZone ? [ownZone] : [])];
    const next = zones[(zones.indexOf(zone) + 1) % zones.length];
    prefer({ zone: next ?? "utc" });
    return true;
  },
};

function isTyping(target: EventTarget | null): boolean {
  return target instanceof Element && target.closest("input:not([type=checkbox]), textarea, select, dialog") !== null;
}

function currentRow(): HTMLElement | null {
  return document.activeElement?.closest<HTMLElement>("[data-row]") ?? null;
}

function move(step: 1 | -1): boolean {
  const rows = [...document.querySelectorAll<HTMLElement>("[data-row]")];
  const at = rows.indexOf(currentRow() as HTMLElement);
  const next = rows[at === -1 ? (step === 1 ? 0 : rows.length - 1) : Math.min(rows.length - 1, Math.max(0, at + step))];
  return focus(next?.querySelector<HTMLElement>("a[href]") ?? null);
}

function focus(element: HTMLElement | null): boolean {
  element?.focus();
  return element !== null;
}

function press(element: HTMLElement | null | undefined): boolean {
  element?.click();
  return element !== null && element !== undefined;
}
