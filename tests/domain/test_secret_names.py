"""Which headers and variables are secrets by their names, and what takes the place of their values."""

from __future__ import annotations

import pytest

from mainspring.domain.errors import InvalidInput
from mainspring.domain.secret_names import MASK, check_no_mask, looks_secret, masked_pairs


@pytest.mark.parametrize(
    "name",
    [
        "Authorization", "authorization", "Proxy-Authorization", "Cookie", "Set-Cookie", "X-Api-Key", "x_api_key",
        "API_KEY", "APIKEY", "apiKey", "XApiKey", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "GITHUB_TOKEN",
        "X-Auth-Token", "AUTHTOKEN", "TOKEN", "Tokens", "PASSWORD", "PGPASSWORD", "DB_PASSWD", "db_pass", "MYSQL_PWD",
        "CLIENT_SECRET", "SECRET", "SECRETS_JSON", "PASSPHRASE", "GOOGLE_CREDENTIALS", "SENTRY_DSN", "SSH_PRIVATE_KEY",
        "KEY", "API_KEY_2", "PASSWORD1", "TOKEN_OLD", "X-Hub-Signature", "JWT", "BASIC_AUTH", "X-CSRF-Token",
    ],
)  # fmt: skip
def test_names_that_look_secret(name: str) -> None:
    assert looks_secret(name)


@pytest.mark.parametrize(
    "name",
    [
        "REGION", "Content-Type", "X-Team", "LANG", "PATH", "MONKEY", "KEYBOARD", "AUTHOR", "COMPASS", "Accept",
        "TOKENIZERS_PARALLELISM", "Idempotency-Key", "idempotency_key", "PINK", "USER_AGENT", "BYPASS", "",
    ],
)  # fmt: skip
def test_names_that_do_not(name: str) -> None:
    assert not looks_secret(name)


def test_pairs_are_masked_by_their_names_and_addresses_by_their_passwords() -> None:
    pairs = {"REGION": "eu", "API_TOKEN": "t0p", "DATABASE_URL": "postgres://app:pw@db/x", "HOOK": "https://a.b/c:d@e"}
    assert masked_pairs(pairs) == {**pairs, "API_TOKEN": MASK, "DATABASE_URL": MASK}
    assert pairs["API_TOKEN"] == "t0p", "the pairs of others are as they were"
    plain = {"REGION": "eu"}
    assert masked_pairs(plain) is plain


def test_a_mask_is_not_a_value() -> None:
    check_no_mask("A", "****", "env.A")
    with pytest.raises(InvalidInput) as refusal:
        check_no_mask("API_TOKEN", MASK, "env.API_TOKEN")
    assert (refusal.value.code, refusal.value.field) == ("masked_value", "env.API_TOKEN")
    assert "leave the field out" in (refusal.value.hint or "")
