"""The times of an ID token: a clock that is off by less than the allowed skew signs in, one beyond it does not."""

from __future__ import annotations

import pytest

from mainspring.domain.errors import Unauthorized
from mainspring.domain.oidc import OLDEST_TOKEN, SKEW, check_id_token
from tests.operations.oidc import CLIENT, ISSUER, settings

NOW = 1_800_000_000.0
INSIDE = 0.001  # seconds

# The claim, the first time that is refused, and the way from there to times that are accepted.
BOUNDARIES = [
    ("exp", NOW - SKEW, +INSIDE),
    ("iat", NOW + SKEW + INSIDE, -INSIDE),
    ("iat", NOW - OLDEST_TOKEN - SKEW - INSIDE, +INSIDE),
    ("nbf", NOW + SKEW + INSIDE, -INSIDE),
    ("auth_time", NOW - 30 - SKEW - INSIDE, +INSIDE),
]


def subject(**times: object) -> str:
    claims = {
        "iss": ISSUER, "aud": CLIENT, "nonce": "n", "sub": "ada", "iat": NOW, "exp": NOW + 300, "auth_time": NOW,
        **times,
    }  # fmt: skip
    return check_id_token(claims, settings(), "n", NOW, signed_in_after=NOW - 30)


@pytest.mark.parametrize(("claim", "refused", "inwards"), BOUNDARIES, ids=lambda value: str(value))
def test_a_skewed_clock_is_accepted_within_the_skew_and_refused_beyond(
    claim: str, refused: float, inwards: float
) -> None:
    assert subject(**{claim: refused + inwards}) == "ada"
    with pytest.raises(Unauthorized, match=rf"\({claim}\)"):
        subject(**{claim: refused})
    hour = -3600.0 if inwards > 0 else 3600.0
    with pytest.raises(Unauthorized, match=rf"\({claim}\)"):
        subject(**{claim: refused + hour})


def test_a_provider_whose_clock_is_off_as_a_whole() -> None:
    for off in (-SKEW + 1, SKEW - 1):
        assert subject(iat=NOW + off, nbf=NOW + off, exp=NOW + off + 300, auth_time=NOW + off) == "ada"
    for off in (SKEW + 1, -OLDEST_TOKEN - SKEW - 1):
        with pytest.raises(Unauthorized):
            subject(iat=NOW + off, nbf=NOW + off, exp=NOW + off + 300, auth_time=NOW + off)


@pytest.mark.parametrize("value", [None, True, "1800000000", float("nan"), float("inf"), [NOW]])
@pytest.mark.parametrize("claim", ["exp", "iat", "nbf", "auth_time"])
def test_a_time_that_is_no_number_is_refused(claim: str, value: object) -> None:
    with pytest.raises(Unauthorized, match=f"has no {claim}"):
        subject(**{claim: value})
