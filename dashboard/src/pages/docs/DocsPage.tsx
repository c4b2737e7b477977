// The API document to browse: operations by tag, with a search. It comes from the server, as clients get it.
import { useQuery } from "@tanstack/react-query";
import { Link, useSearch } from "@tanstack/react-router";
import { get } from "../../api/client";
import { plural } from "../../lib/format";
import { LinkButton } from "../../ui/Button";
import { Filters, TextFilter } from "../../ui/Filters";
import { Card, Empty, Page, Skeleton } from "../../ui/Page";
import { ProblemBox } from "../../ui/Problem";
import styles from "./Docs.module.css";
import { type Document, matches, type Operation, operationsOf } from "./model";
import { OperationView } from "./OperationView";

export function DocsPage() {
  const { q, op, status } = useSearch({ from: "/docs" });
  const found = useQuery({
    queryKey: ["openapi"],
    queryFn: ({ signal }) => get<Document>("/schema/openapi.json", {}, signal),
    staleTime: Infinity,
  });
  const title = "API";
  if (found.isPending) return <Page title={title}><Skeleton /></Page>;
  if (found.data === undefined)
    return (
      <Page title={title}>
        <ProblemBox error={found.error} retry={() => void found.refetch()} />
      </Page>
    );
  const operations = operationsOf(found.data);
  const chosen = operations.find((one) => one.operationId === op);
  if (chosen !== undefined)
    return (
      <Page
        title={chosen.summary} lead={<Address operation={chosen} />}
        actions={<LinkButton to="/docs" search={{ q }}>All operations</LinkButton>}
      >
        <OperationView document={found.data} operation={chosen} status={status} />
      </Page>
    );
  return <Operations document={found.data} operations={operations} q={q} />;
}

function Operations({ document, operations, q }: { document: Document; operations: Operation[]; q: string | undefined }) {
  const shown = q === undefined ? operations : operations.filter((one) => matches(one, q));
  return (
    <Page
      title="API"
      lead={
        <p>
          {document.info.title} {document.info.version}, {plural(operations.length, "operation")}. For programs:{" "}
          <a href="/schema/openapi.json">OpenAPI 3.1</a>
        </p>
      }
    >
      <Filters active={q === undefined ? [] : ["q"]}>
        <TextFilter name="q" value={q} label="Search the operations" wide />
      </Filters>
      {shown.length === 0 ? <Empty title="No operation matches.">Words are looked for in names, paths, parameters and descriptions.</Empty> : null}
      {document.tags.map((tag) => {
        const own = shown.filter((one) => one.tags.includes(tag.name));
        return own.length === 0 ? null : (
          <Card key={tag.name} title={tag.name} aside={<span className="muted">{tag.description}</span>}>
            <ul className={styles.operations} aria-label={`Operations: ${tag.name}`}>
              {own.map((one) => (
                <li key={one.operationId}>
                  <Link to="/docs" search={{ op: one.operationId, q }}>
                    {one.summary}
                  </Link>
                  <Address operation={one} />
                </li>
              ))}
            </ul>
          </Card>
        );
      })}
    </Page>
  );
}

function Address({ operation }: { operation: Operation }) {
  return (
    <code className="wrap">
      <strong>{operation.method}</strong> {operation.path}
    </code>
  );
}
