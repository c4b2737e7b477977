import { Link, type LinkProps } from "@tanstack/react-router";
import type { ButtonHTMLAttributes, ReactNode } from "react";
import styles from "./Button.module.css";

type Kind = "plain" | "primary" | "danger" | "quiet" | "link";

interface Props extends ButtonHTMLAttributes<HTMLButtonElement> {
  kind?: Kind;
  icon?: ReactNode;
  busy?: boolean;
}

export function Button({ kind = "plain", icon, busy = false, children, className, disabled, ...rest }: Props) {
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
