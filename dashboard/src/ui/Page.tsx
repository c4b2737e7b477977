// The frame of a page: title, actions, content; and the parts that every page has.
import { type ReactNode, useEffect, useState } from "react";
import { visible } from "../lib/visible/visible";
import { Copy } from "./Copy";
import styles from "./Page.module.css";

interface Props {
  title: string;
  heading?: ReactNode;
  lead?: ReactNode;
  actions?: ReactNode;
  children: ReactNode;
}

export function Page({ title, heading, lead, actions, children }: Props) {
  useEffect(() => {
    document.title = visible(`${title} · Mainspring`);
  }, [title]);
  return (
    <div className={styles.page}>
      <header className={styles.head}>
        <div className={styles.title}>
          <h1 className="wrap">{heading ?? title}</h1>
          {lead ? <div className={styles.lead}>{lead}</div> : null}
        </div>
        {actions ? <div className={styles.actions}>{actions}</div> : null}
      </header>
      {children}
    </div>
  );
}

export function Toolbar({ children }: { children: ReactNode }) {
  return <div className={styles.toolbar}>{children}</div>;
}

export function Card({ title, aside, children, flush = false }: {
  title?: ReactNode; aside?: ReactNode; children: ReactNode; flush?: boolean;
}) {
  return (
    <section className={styles.card}>
      {title || aside ? (
        <div className={styles.cardHead}>
          <h2>{title}</h2>
          {aside}
        </div>
      ) : null}
      <div className={flush ? styles.flush : styles.cardBody}>{children}</div>
    </section>
  );
}

/** Grey bars in place of text. They appear after 150 ms, so that a fast answer does not flicker. */
export function Skeleton({ lines = 6 }: { lines?: number }) {
  const [visible, setVisible] = useState(false);
  useEffect(() => {
    const timer = window.setTimeout(() => setVisible(true), 150);
    return () => window.clearTimeout(timer);
  }, []);
  if (!visible) return <div className={styles.skeleton} aria-busy="true" />;
  return (
    <div className={styles.skeleton} aria-busy="true">
      <span className="sr" role="status">
        Loading
      </span>
      {Array.from({ length: lines }, (_, index) => (
        <div key={index} className={styles.bar} />
      ))}
    </div>
  );
}

/** Nothing is there yet: says so, and teaches the first command. */
export function Empty({ title, children, command }: { title: string; children?: ReactNode; command?: string }) {
  return (
    <div className={styles.empty}>
      <h2>{title}</h2>
      {children ? <p className="muted">{children}</p> : null}
      {command ? (
        <div className={styles.commandLine}>
          <pre className={styles.command}>
            <code>{command}</code>
          </pre>
          <Copy text={command} label="Copy the command" />
        </div>
      ) : null}
    </div>
  );
}

export function Figure({ label, value, note, tone }: {
  label: string; value: ReactNode; note?: ReactNode; tone?: "failed" | "held" | undefined;
}) {
  return (
    <div className={styles.figure}>
      <span className={styles.label}>{label}</span>
      <span className={`${styles.value} ${tone ? styles[tone] : ""}`}>{value}</span>
      {note ? <span className={styles.note}>{note}</span> : null}
    </div>
  );
}

export function Figures({ children }: { children: ReactNode }) {
  return <div className={styles.figures}>{children}</div>;
}

/** Names and values in two columns. */
export function Facts({ rows }: { rows: [string, ReactNode][] }) {
  return (
    <dl className={styles.facts}>
      {rows.map(([name, value]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd className="wrap">{value === null || value === "" ? <span className="muted">none</span> : value}</dd>
        </div>
      ))}
    </dl>
  );
}
