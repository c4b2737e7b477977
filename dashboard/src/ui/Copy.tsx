import { Check, Copy as CopyIcon } from "lucide-react";
import { useState } from "react";
import { Button } from "./Button";

export function Copy({ text, label }: { text: string; label: string }) {
  const [done, setDone] = useState(false);
  const copy = async (): Promise<void> => {
    await navigator.clipboard.writeText(text);
    setDone(true);
    window.setTimeout(() => setDone(false), 1500);
  };
  const icon = done ? <Check size={14} /> : <CopyIcon size={14} />;
  return <Button kind="quiet" icon={icon} aria-label={done ? "Copied" : label} title={label} onClick={() => void copy()} />;
}
