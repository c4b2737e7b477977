// Asks with the count, begins the operation, and shows its progress.
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { type ReactNode, useRef, useState } from "react";
import { Refused } from "../api/client";
import type { OperationView } from "../api/schema";
import { counted, plural, shortId } from "../lib/format";
import { Confirm, Dialog } from "../ui/Dialog";
import { Skeleton } from "../ui/Page";
import { ProblemBox } from "../ui/Problem";
import { begin, bodyOf, type Chosen, countMatching, type Filter, NOUNS, type Target, type Verb } from "./acts";
import { OperationProgress } from "./OperationProgress";

interface Props {
  target: Target;
  verb: Verb;
  chosen: Chosen;
  onClose: () => void;
  /** Called when all is dealt with. */
  onDone?: () => void;
}

export function ActDialog({ target, verb, chosen, onClose, onDone }: Props) {
  const [operation, setOperation] = useState<OperationView | null>(null);
  const client = useQueryClient();
  const done = (): void => {
    void client.invalidateQueries({ queryKey: ["list"] });
    onDone?.();
  };
  const shared = { target, verb, onClose, onBegun: setOperation };
  if (operation !== null) return <OperationProgress begun={operation} title={`${verb.label}: ${many(target, operation.count, operation.exact)}`} onEnd={done} onClose={onClose} />;
  return "ids" in chosen ? <Ask {...shared} chosen={chosen} amount={chosen.ids.length} exact names={chosen.names} /> : <AskByFilter {...shared} filter={chosen.filter} />;
}

interface AskProps {
  target: Target;
  verb: Verb;
  onClose: () => void;
  onBegun: (operation: OperationView) => void;
}

function AskByFilter({ filter, ...rest }: AskProps & { filter: Filter }) {
  const { target, verb, onClose } = rest;
  const found = useQuery({
    queryKey: ["matching", target, verb.name, filter],
    queryFn: ({ signal }) => countMatching(target, verb.name, filter, signal),
    staleTime: 0,
    gcTime: 0,
    retry: false,
  });
  const title = `${verb.label} all ${NOUNS[target]}s that match`;
  if (found.data === undefined)
    return (
      <Dialog title={title} onClose={onClose}>
        {found.error ? <ProblemBox error={found.error} retry={() => void found.refetch()} /> : <><p role="status">Counting what matches</p><Skeleton lines={2} /></>}
      </Dialog>
    );
  const { count, exact, examples } = found.data;
  if (count === 0)
    return (
      <Dialog title={title} onClose={onClose}>
        <p>No {NOUNS[target]} matches.</p>
      </Dialog>
    );
  return (
    <Ask {...rest} chosen={{ filter }} amount={count} exact={exact} names={examples.map(shortId)} recount={() => void found.refetch()}>
      <p className="wrap">{words(filter, target)}</p>
    </Ask>
  );
}

function Ask({ target, verb, chosen, amount, exact, names, recount, children, onBegun, onClose }: AskProps & {
  chosen: Chosen; amount: number; exact: boolean; names: string[]; recount?: () => void; children?: ReactNode;
}) {
  const begun = useRef(false);
  const what = many(target, amount, exact);
  const act = async (): Promise<void> => {
    try {
      const operation = await begin(target, verb.name, chosen, amount);
      begun.current = true;
      onBegun(operation);
    } catch (error) {
      if (error instanceof Refused && error.problem.code === "count_changed") recount?.();
      throw error;
    }
  };
  return (
    <Confirm
      title={`${verb.label}: ${what}?`} verb={`${verb.label} ${what}`} danger={verb.danger === true} amount={amount} act={act}
      onClose={() => (begun.current ? undefined : onClose())} same={{ method: "POST", path: `/v1/${target}:act`, body: bodyOf(verb.name, chosen, amount) }}
    >
      {children}
      <p>{verb.effect}</p>
      <ul className="muted">
        {names.slice(0, 6).map((name) => (
          <li key={name} className="cut">
            {name}
          </li>
        ))}
        {amount > Math.min(6, names.length) ? <li>and {exact ? plural(amount - Math.min(6, names.length), "other") : "others"}</li> : null}
      </ul>
    </Confirm>
  );
}

function many(target: Target, amount: number, exact: boolean): string {
  return exact ? plural(amount, NOUNS[target]) : `${counted(amount, true)} ${NOUNS[target]}s`;
}

function words(filter: Filter, target: Target): string {
  const given = Object.entries(filter).filter(([, value]) => value !== undefined && value !== "");
  if (given.length === 0) return target === "jobs" ? "All jobs that will fire again." : `All ${NOUNS[target]}s of the tenant.`;
  return `All that match ${given.map(([name, value]) => `${name.replace("_", " ")} ${value}`).join(", ")}.`;
}
