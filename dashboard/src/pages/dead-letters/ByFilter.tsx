// Replay or discard by the filter that is shown. The count comes first.
import { useQueryClient } from "@tanstack/react-query";
import { post } from "../../api/client";
import type { DeadLetterView, Discarded, Replayed } from "../../api/schema";
import { count, plural } from "../../lib/format";
import { Confirm } from "../../ui/Dialog";
import { say } from "../../ui/Toasts";
import type { Keyset } from "../../ui/useKeyset";

export function ByFilter({ verb, filter, list, onClose }: {
  verb: "replay" | "discard"; filter: Record<string, string | undefined>; list: Keyset<DeadLetterView>; onClose: () => void;
}) {
  const client = useQueryClient();
  const narrowed = Object.keys(filter).length > 0;
  const amount = list.rows.length;
  const shown = list.next === null ? plural(amount, "dead letter") : `more than ${count(amount)} dead letters`;
  const body = narrowed ? filter : { all: true };
  const act = async (): Promise<void> => {
    let done = 0;
    for (let more = true; more; ) {
      const answer = await post<Replayed | Discarded>(`/v1/dead-letters:${verb}`, body);
      done += "replayed" in answer ? answer.replayed : answer.discarded;
      more = answer.more;
    }
    say(`${verb === "replay" ? "Replayed" : "Discarded"} ${plural(done, "dead letter")}.`);
    await client.invalidateQueries({ queryKey: ["list"] });
  };
  const words = Object.entries(filter).map(([name, value]) => `${name} ${value}`).join(", ");
  return (
    <Confirm
      title={`${verb === "replay" ? "Replay" : "Discard"} ${shown}?`} verb={verb === "replay" ? "Replay them" : "Discard them"}
      danger={verb === "discard"} act={act} onClose={onClose}
    >
      <p className="wrap">{narrowed ? `All that match: ${words}.` : "All dead letters of the tenant."}</p>
      <p>
        {verb === "replay"
          ? "Each becomes a new run for the same fire time, with its own payload."
          : "Their payloads are deleted. The runs stay in the history as failed."}
      </p>
    </Confirm>
  );
}
