// Starts a backfill for a range of missed fires.
import { useNavigate } from "@tanstack/react-router";
import { History } from "lucide-react";
import { useState } from "react";
import { post } from "../../api/client";
import { jobPath } from "../../api/queries";
import type { BackfillView, MissedRange } from "../../api/schema";
import { plural } from "../../lib/format";
import type { Same } from "../../ui/AsCommand";
import { Button } from "../../ui/Button";
import { Confirm } from "../../ui/Dialog";
import { Field } from "../../ui/Field";
import { Time } from "../../ui/Time";

export function MakeUp({ job, name, range }: { job: string; name: string | null; range: Pick<MissedRange, "first" | "last" | "count"> }) {
  const [asked, setAsked] = useState(false);
  const [atOnce, setAtOnce] = useState("1");
  const navigate = useNavigate();
  const what = `${plural(range.count, "missed fire")} of ${name ?? job}`;
  const to = new Date(Date.parse(range.last) + 1).toISOString(); // the end of the range is not part of it, and must be over
  const body = { from: range.first, to, concurrency: Number(atOnce) };
  const same: Same = {
    command: ["backfill", "create", job, "--from", range.first, "--to", to, "--concurrency", atOnce], method: "POST", path: `${jobPath(job)}:backfill`, body,
    python: ["create_backfill", job, range.first, to], named: { concurrency: body.concurrency },
  };
  const act = async (): Promise<void> => {
    const made = await post<BackfillView>(`${jobPath(job)}:backfill`, body);
    await navigate({ to: "/operations", search: { tab: "backfills", backfill: made.id } });
  };
  return (
    <>
      <Button needs="jobs.backfill" icon={<History size={14} />} onClick={() => setAsked(true)} aria-label={`Backfill ${what}`}>
        Backfill
      </Button>
      {asked ? (
        <Confirm title={`Backfill ${what}?`} verb="Start the backfill" act={act} onClose={() => setAsked(false)} same={same}>
          <p>
            Every fire of the schedule from <Time at={range.first} exact /> to <Time at={range.last} exact /> that has no run gets one.
          </p>
          <Field label="Runs at once" inputMode="numeric" value={atOnce} onChange={(event) => setAtOnce(event.target.value)} />
        </Confirm>
      ) : null}
    </>
  );
}
