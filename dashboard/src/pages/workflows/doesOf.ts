// What a step runs, in a few words: its task, its command, or the call of its kind.
import type { StepIn } from "../../api/schema";

const MOST = 60;

export function doesOf(step: StepIn): string {
  const call = step.command ?? step.sql?.statement ?? (step.http ? `${step.http.method ?? "POST"} ${step.http.url}` : step.task ?? step.job_type ?? step.name);
  const text = [call].flat().join(" ");
  return `${step.map ? "for each: " : ""}${text.length > MOST ? `${text.slice(0, MOST)}…` : text}`;
}
