"""Each attempt has a session of SQLAlchemy: committed if it succeeds, rolled back if it fails."""

from __future__ import annotations

import os
from collections.abc import Generator
from contextvars import ContextVar

from sqlalchemy import create_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from mainspring import Context, Mainspring

app = Mainspring("shop")
engine = create_engine(os.environ.get("SHOP_DATABASE_URL", "sqlite:///shop.sqlite3"))
session: ContextVar[Session] = ContextVar("session")


class Base(DeclarativeBase): ...


class Order(Base):
    __tablename__ = "orders"
    name: Mapped[str] = mapped_column(primary_key=True)


@app.middleware
def in_a_session(ctx: Context) -> Generator[None, None, None]:
    with Session(engine) as one, one.begin():
        session.set(one)
        yield


@app.task(retries=0)
def store(name: str, good: bool = True) -> None:
    session.get().add(Order(name=name))
    session.get().flush()
    if not good:
        raise ValueError("not this one")
