// Filters of a list: they live in the address. Text is applied 250 ms after typing.
import { useNavigate } from "@tanstack/react-router";
import { Search as SearchIcon, X } from "lucide-react";
import { Children, type ReactNode, useEffect, useState } from "react";
import { Button } from "./Button";
import styles from "./Filters.module.css";

const SHOWN_ON_PHONE = 2;

export function useSetSearch(): (change: Record<string, string | undefined>, push?: boolean) => void {
  const navigate = useNavigate();
  return (change, push = false) =>
    void navigate({
      to: ".",
      search: ((old: Record<string, unknown>) => ({ ...old, after: undefined, ...change })) as never,
      replace: !push,
      resetScroll: false,
    });
}

export function Filters({ children, active }: { children: ReactNode; active: string[] }) {
  const set = useSetSearch();
  const [all, setAll] = useState(false);
  const many = Children.toArray(children).length > SHOWN_ON_PHONE;
  return (
    <div className={`${styles.filters} ${all ? styles.all : ""}`} role="search">
      {children}
      {many ? (
        <Button kind="quiet" className={styles.toggle} aria-expanded={all} onClick={() => setAll(!all)}>
          {all ? "Fewer filters" : "More filters"}
        </Button>
      ) : null}
      {active.length > 0 ? (
        <Button kind="quiet" icon={<X size={14} />} onClick={() => set(Object.fromEntries(active.map((name) => [name, undefined])))}>
          Clear
        </Button>
      ) : null}
    </div>
  );
}

export function TextFilter({ name, value, label, wide = false, list }: {
  name: string; value: string | undefined; label: string; wide?: boolean; list?: string;
}) {
  const set = useSetSearch();
  const [text, setText] = useState(value ?? "");
  useEffect(() => setText(value ?? ""), [value]);
  useEffect(() => {
    if (text === (value ?? "")) return;
    const timer = window.setTimeout(() => set({ [name]: text.trim() || undefined }), 250);
    return () => window.clearTimeout(timer);
  });
  return (
    <label className={`${styles.text} ${wide ? styles.wide : ""}`}>
      {wide ? <SearchIcon size={14} aria-hidden="true" /> : null}
      <input
        type="search"
        aria-label={label}
        placeholder={label}
        value={text}
        size={Math.max(10, label.length)}
        list={list}
        data-filter={wide ? "first" : undefined}
        onChange={(event) => setText(event.target.value)}
      />
    </label>
  );
}

export function ChoiceFilter({ name, value, label, options, none = "all" }: {
  name: string; value: string | undefined; label: string; options: [string, string][]; none?: string;
}) {
  const set = useSetSearch();
  return (
    <select className={styles.select} aria-label={label} value={value ?? ""} onChange={(event) => set({ [name]: event.target.value || undefined })}>
      <option value="">{label}: {none}</option>
      {options.map(([key, text]) => (
        <option key={key} value={key}>
          {text}
        </option>
      ))}
    </select>
  );
}
