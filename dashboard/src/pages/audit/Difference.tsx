// What a change replaced, and by what.
import type { AuditEntry } from "../../api/schema";
import styles from "./Difference.module.css";

const MOST = 8;

export function Difference({ entry }: { entry: AuditEntry }) {
  return <Members before={entry.before ?? {}} after={entry.after ?? {}} />;
}

export function Members({ before: was, after: is, most = MOST }: { before: Record<string, unknown>; after: Record<string, unknown>; most?: number }) {
  const before = flat(was);
  const after = flat(is);
  const names = [...new Set([...Object.keys(before), ...Object.keys(after)])].filter((name) => words(before[name]) !== words(after[name]));
  if (names.length === 0) return null;
  return (
    <dl className={styles.members}>
      {names.slice(0, most).map((name) => (
        <Member key={name} name={name} before={before[name]} after={after[name]} />
      ))}
      {names.length > most ? <dt>and {names.length - most} more</dt> : null}
    </dl>
  );
}

function Member({ name, before, after }: { name: string; before: unknown; after: unknown }) {
  return (
    <>
      <dt>{name}</dt>
      <dd>
        {before === undefined ? null : <><del>{words(before)}</del>{" → "}</>}
        {after === undefined ? <span className="muted">gone</span> : <ins>{words(after)}</ins>}
      </dd>
    </>
  );
}

/** The members, with those of an object beside each other: `env.MODE`. */
function flat(members: Record<string, unknown>): Record<string, unknown> {
  const inner = (name: string, value: unknown): [string, unknown][] =>
    isObject(value) && !("digest" in value) ? Object.entries(value).map(([one, of]) => [`${name}.${one}`, of]) : [[name, value]];
  return Object.fromEntries(Object.entries(members).flatMap(([name, value]) => inner(name, value)));
}

function isObject(value: unknown): value is Record<string, unknown> {
  return value !== null && typeof value === "object" && !Array.isArray(value);
}

/** A digest stands for a payload, a secret or a long value. */
function words(value: unknown): string {
  if (isObject(value) && "digest" in value) {
    const { digest, bytes, begins } = value as { digest: string; bytes?: number; begins?: string };
    return `${begins === undefined ? "" : `${begins}… `}digest ${digest.slice(0, 8)}${bytes === undefined ? "" : ` of ${bytes} bytes`}`;
  }
  return typeof value === "string" ? value : (JSON.stringify(value) ?? "");
}
