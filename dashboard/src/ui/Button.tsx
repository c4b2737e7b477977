import { Link, type LinkProps } from "@tanstack/react-router";
import type { ButtonHTMLAttributes, ReactNode } from "react";
import { useMay } from "../api/session";
import styles from "./Button.module.css";

type Kind = "plain" | "primary" | "danger" | "quiet" | "link";

/** Who may do what the button does: what the server calls it, and the token that created the thing, if its creator may. */
interface Needs {
  needs?: string;
  creator?: string | null;
}

interface Props extends ButtonHTMLAttributes<HTMLButtonElement>, Needs {
  kind?: Kind;
  icon?: ReactNode;
  busy?: boolean;
}

/** It is not offered to those who may not do it. */
export function Button({ needs, creator, ...props }: Props) {
  return needs === undefined ? <Shown {...props} /> : <Allowed needs={needs} creator={creator}><Shown {...props} /></Allowed>;
}

export function Allowed({ needs, creator, children }: Needs & { needs: string; children: ReactNode }) {
  return useMay(needs, creator) ? children : null;
}

function Shown({ kind = "plain", icon, busy = false, children, className, disabled, ...rest }: Omit<Props, "needs" | "creator">) {
  const classes = [styles.button, styles[kind], children ? "" : styles.square, className ?? ""].join(" ");
  return (
    <button type="button" className={classes} disabled={disabled === true || busy} aria-busy={busy} {...rest}>
      {icon}
      {children}
    </button>
  );
}

export function LinkButton({
  kind = "plain", icon, children, ...link
}: LinkProps & { kind?: Kind; icon?: ReactNode; children: ReactNode }) {
  return (
    <Link className={`${styles.button} ${styles[kind]}`} {...link}>
      {icon}
      {children}
    </Link>
  );
}
