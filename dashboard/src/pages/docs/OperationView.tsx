// One operation: what it does, its parameters, body and answers, and a request to try.
import { Card } from "../../ui/Page";
import { Json } from "../../ui/Json";
import { Tabs } from "../../ui/Tabs";
import styles from "./Docs.module.css";
import { type Answer, bodyOf, type Document, type Operation, typeWords } from "./model";
import { Prose } from "./Prose";
import { SchemaView } from "./SchemaView";
import { TryIt } from "./TryIt";

export function OperationView({ document, operation, status }: { document: Document; operation: Operation; status: string | undefined }) {
  const { parameters = [], responses } = operation;
  const body = bodyOf(operation);
  const codes = Object.keys(responses);
  const shown = status !== undefined && status in responses ? status : (codes[0] ?? "");
  const answer = responses[shown];
  return (
    <>
      <Card title="What it does">
        <Prose text={operation.description} />
        {operation.security?.length === 0 ? <p className="muted">It needs no token.</p> : null}
      </Card>
      {parameters.length > 0 ? (
        <Card title="Parameters">
          <ul className={styles.fields}>
            {parameters.map((one) => (
              <li key={one.name}>
                <code className={styles.name}>{one.name}</code>
                <span className={styles.type}>
                  {one.in}, {typeWords(document, one.schema)}
                  {one.required ? <strong> required</strong> : null}
                </span>
                <Prose text={one.description} />
              </li>
            ))}
          </ul>
        </Card>
      ) : null}
      {body ? (
        <Card title={operation.requestBody?.required ? "Body" : "Body, which may be left out"}>
          <SchemaView document={document} schema={body.schema} />
        </Card>
      ) : null}
      <Card title="Answers">
        <Tabs label="Answers" name="status" value={shown} tabs={codes.map((code) => [code, code])} />
        {answer ? <AnswerView document={document} answer={answer} /> : null}
      </Card>
      <Card title="Try it">
        <TryIt key={operation.operationId} operation={operation} />
      </Card>
    </>
  );
}

function AnswerView({ document, answer }: { document: Document; answer: Answer }) {
  return (
    <div className={styles.stack}>
      <Prose text={answer.description} />
      {Object.entries(answer.content ?? {}).map(([media, content]) => (
        <div key={media} className={styles.stack}>
          <p className="muted">
            <code>{media}</code>
            {answer.headers ? ` · headers ${Object.keys(answer.headers).join(", ")}` : ""}
          </p>
          <SchemaView document={document} schema={content.schema} />
          {content.example === undefined ? null : <Json value={content.example} label="example" />}
        </div>
      ))}
    </div>
  );
}
