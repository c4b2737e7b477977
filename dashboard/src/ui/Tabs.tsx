// Tabs are links: the address names the tab.
import { Link } from "@tanstack/react-router";
import type { ReactNode } from "react";
import styles from "./Tabs.module.css";

export function Tabs({ label, name, value, tabs, clears = [] }: {
  label: string; name: string; value: string; tabs: [string, ReactNode][]; clears?: string[];
}) {
  // What belongs to one tab only goes with it.
  const cleared = Object.fromEntries(["after", ...clears].map((one) => [one, undefined]));
  return (
    <nav className={styles.tabs} aria-label={label}>
      {tabs.map(([key, text]) => (
        <Link
          key={key}
          to="."
          search={(old: Record<string, unknown>) => ({ ...old, [name]: key, ...cleared }) as never}
          replace
          resetScroll={false}
          className={styles.tab}
          aria-current={key === value ? "page" : undefined}
        >
          {text}
        </Link>
      ))}
    </nav>
  );
}

/** A choice of few, as buttons side by side. */
export function Choice<T extends string>({ label, value, options, onChange }: {
  label: string; value: T; options: [T, ReactNode][]; onChange: (value: T) => void;
}) {
  return (
    <div className={styles.choice} role="group" aria-label={label}>
      {options.map(([key, text]) => (
        <button key={key} type="button" aria-pressed={key === value} onClick={() => onChange(key)}>
          {text}
        </button>
      ))}
    </div>
  );
}
