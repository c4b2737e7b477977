"""Tasks that do their worst with a secret."""

from __future__ import annotations

import base64
import logging
import sys
from urllib.parse import quote

from mainspring import Context, Mainspring

app = Mainspring()


def leak(ctx: Context, how: str) -> object:
    value = ctx.secret("api-token")
    encoded = base64.b64encode(f"user:{value}".encode()).decode()
    match how:
        case "print":
            print(value, quote(value), encoded)  # noqa: T201
        case "split":
            for character in value:
                sys.stdout.write(character)
                sys.stdout.flush()
            sys.stderr.write(value[:7])
            sys.stderr.write(value[7:])
        case "log":
            logging.getLogger("leak").warning("the token is %s", value)
            ctx.log(value, encoded)
        case "progress":
            ctx.progress(0.5, f"now with {value}")
        case "result":
            return {"token": value, value: [encoded, quote(value, safe="")], "list": list(value)}
        case "text":
            return value
        case "fail":
            raise ValueError(f"bad token {value} {encoded}")
        case "fail long":
            raise ValueError("x" * 9000 + value + "y" * 9000)
        case "class":
            raise type(f"E{value.replace('-', '_')}", (Exception,), {})(value)
        case "exit":
            print(value, end="", file=sys.stderr)  # noqa: T201
            raise SystemExit(value)
    return None


@app.task(secrets=["api-token"], retries=0)
def in_a_thread(ctx: Context, how: str) -> object:
    return leak(ctx, how)


@app.task(secrets=["api-token"], retries=0)
async def on_the_loop(ctx: Context, how: str) -> object:
    return leak(ctx, how)


@app.task(secrets=["api-token"], retries=0, executor="process")
def in_a_process(ctx: Context, how: str) -> object:
    return leak(ctx, how)


WAYS = ("print", "split", "log", "progress", "result", "text", "fail", "fail long", "class", "exit")
TASKS = ("in_a_thread", "on_the_loop", "in_a_process")
