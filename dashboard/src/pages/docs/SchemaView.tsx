// The fields of a body. Structs within it open one by one, since some contain themselves.
import { useState } from "react";
import styles from "./Docs.module.css";
import { type Document, nameOf, resolved, type Schema, structsIn, typeWords } from "./model";
import { Prose } from "./Prose";

export function SchemaView({ document, schema }: { document: Document; schema: Schema }) {
  const name = nameOf(schema);
  const target = resolved(document, schema);
  if (target.properties === undefined)
    return (
      <div className={styles.schema}>
        <p>
          <code>{typeWords(document, schema)}</code>
        </p>
        {structsIn(document, schema).map((one) => (
          <Struct key={one} document={document} name={one} />
        ))}
      </div>
    );
  return (
    <div className={styles.schema}>
      {name === null ? null : <h3>{name}</h3>}
      {target.description ? <Prose text={target.description} /> : null}
      <Fields document={document} schema={target} />
    </div>
  );
}

function Fields({ document, schema }: { document: Document; schema: Schema }) {
  const required = new Set(schema.required ?? []);
  return (
    <ul className={styles.fields}>
      {Object.entries(schema.properties ?? {}).map(([name, field]) => (
        <li key={name}>
          <code className={styles.name}>{name}</code>
          <span className={styles.type}>
            {typeWords(document, field)}
            {required.has(name) ? <strong> required</strong> : null}
            {field.default === undefined || field.default === "" ? null : <> · default {JSON.stringify(field.default)}</>}
          </span>
          {structsIn(document, field).map((one) => (
            <Struct key={one} document={document} name={one} />
          ))}
        </li>
      ))}
    </ul>
  );
}

function Struct({ document, name }: { document: Document; name: string }) {
  const [open, setOpen] = useState(false);
  const schema = document.components.schemas[name] ?? {};
  return (
    <details className={styles.struct} onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>{name}</summary>
      {open ? (
        <>
          {schema.description ? <Prose text={schema.description} /> : null}
          <Fields document={document} schema={schema} />
        </>
      ) : null}
    </details>
  );
}
