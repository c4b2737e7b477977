import { Check, Copy as CopyIcon } from "lucide-react";
import { useState } from "react";
import { Button } from "./Button";
import { say } from "./Toasts";

/** Whether the text is in the clipboard. A browser has none for a page without HTTPS, or may refuse. */
export async function toClipboard(text: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    say("The browser did not allow to copy it. Select the text and copy it by hand.");
    return false;
  }
}

export function Copy({ text, label }: { text: string; label: string }) {
  const [done, setDone] = useState(false);
  const copy = async (): Promise<void> => {
    if (!(await toClipboard(text))) return;
    setDone(true);
    window.setTimeout(() => setDone(false), 1500);
  };
  const icon = done ? <Check size={14} /> : <CopyIcon size={14} />;
  return <Button kind="quiet" icon={icon} aria-label={done ? "Copied" : label} title={label} onClick={() => void copy()} />;
}
