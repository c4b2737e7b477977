// What the forms of channels, rules and sinks share: sending settings, the same as a command, and the problem of each field.
import { useState } from "react";
import { call, change, get, Refused } from "../../api/client";
import { HIDDEN, type Same } from "../../ui/AsCommand";
import { type Problems, problemsOf } from "../job-form/problems";

export function listed(text: string): string[] {
  return text.split(",").map((one) => one.trim()).filter((one) => one !== "");
}

/** Seconds as the server reads them: 14400 is 4h. */
export function written(seconds: number | string | null | undefined): string {
  if (seconds === null || seconds === undefined) return "";
  if (typeof seconds === "string") return seconds;
  for (const [unit, size] of [["d", 86_400], ["h", 3600], ["m", 60]] as const) if (seconds > 0 && seconds % size === 0) return `${seconds / size}${unit}`;
  return `${seconds}s`;
}

/** Creates what does not exist yet, or changes what the person saw. A form that creates does not replace what exists. */
export async function store(path: string, what: string, seen: number | null, body: unknown): Promise<void> {
  if (seen !== null) {
    await change("PUT", path, seen, body);
    return;
  }
  const exists = await get(path).then(() => true, (error: unknown) => !(error instanceof Refused && error.status === 404));
  if (exists) throw new Refused(taken(what));
  await call("PUT", path, { body });
}

/** The same by HTTP and as a call of a client, without the values of secret fields. */
export function asCommand(path: string, call: string, name: string, settings: Record<string, unknown>, fields: readonly { name: string; secret?: true }[]): Same {
  const hidden = Object.fromEntries(fields.filter((field) => field.secret && settings[field.name] !== undefined).map((field) => [field.name, HIDDEN]));
  const body = { ...settings, ...hidden };
  return { method: "PUT", path, body, python: [call, name, body] };
}

function taken(what: string): Refused["problem"] {
  const problem = {
    type: "about:blank", title: "Name in use", status: 409, code: "name_in_use", field: "name", errors: [],
    detail: `there is a ${what} with this name`, hint: "Choose another name, or edit the one that exists.",
  };
  return problem as unknown as Refused["problem"];
}

/** The problem of a field, or of one of its parts, after the server has refused the settings. */
export function useProblems(): { of: (field: string) => string | undefined; watch: (act: () => Promise<void>) => () => Promise<void> } {
  const [problems, setProblems] = useState<Problems>({});
  return {
    of: (field) => Object.entries(problems).find(([name]) => name === field || name.startsWith(`${field}.`) || name.startsWith(`${field}[`))?.[1],
    watch: (act) => async () => {
      setProblems({});
      try {
        await act();
      } catch (error) {
        setProblems(problemsOf(error));
        throw error;
      }
    },
  };
}
