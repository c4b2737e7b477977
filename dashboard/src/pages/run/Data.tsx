import type { RunView } from "../../api/schema";
import { Card, Facts } from "../../ui/Page";
import { Json } from "../../ui/Json";
import { Time } from "../../ui/Time";

export function Data({ run }: { run: RunView }) {
  return (
    <>
      <Card title="Payload">
        {run.payload_dropped ? (
          <p className="muted">The run succeeded, and its payload was not kept.</p>
        ) : run.payload === null ? (
          <p className="muted">The run has no payload.</p>
        ) : (
          <Json value={run.payload} label="payload" />
        )}
      </Card>
      <Card title="Result">
        {run.result === null ? <p className="muted">There is no result.</p> : <Json value={run.result} label="result" />}
      </Card>
      <Card title="Facts">
        <Facts
          rows={[
            ["Run", <code key="r">{run.run_id}</code>],
            ["Job", <code key="j">{run.job_id}</code>],
            ["Idempotency key", <code key="k">{run.idempotency_key}</code>],
            ["Created", <Time key="c" at={run.created_at} exact focusable />],
            ["Started", <Time key="s" at={run.start_time} exact focusable none="not yet" />],
            ["Ended", <Time key="e" at={run.end_time} exact focusable none="not yet" />],
            ["Fence", String(run.fence)],
          ]}
        />
      </Card>
    </>
  );
}
