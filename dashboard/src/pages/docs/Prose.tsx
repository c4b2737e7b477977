// Text of the document: `code` between backticks, and lines that begin with a dash as a list.
import type { ReactNode } from "react";

export function Prose({ text }: { text: string }) {
  const lines = text.split("\n").filter((line) => line.trim() !== "");
  const plain = lines.filter((line) => !line.startsWith("- "));
  const items = lines.filter((line) => line.startsWith("- "));
  return (
    <>
      {plain.length > 0 ? <p className="wrap">{withCode(plain.join(" "))}</p> : null}
      {items.length > 0 ? (
        <ul>
          {items.map((item) => (
            <li key={item} className="wrap">
              {withCode(item.slice(2))}
            </li>
          ))}
        </ul>
      ) : null}
    </>
  );
}

function withCode(text: string): ReactNode[] {
  return text.split("`").map((part, index) => (index % 2 === 1 ? <code key={index}>{part}</code> : part));
}
