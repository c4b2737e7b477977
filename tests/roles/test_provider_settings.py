"""The file with providers of OpenID Connect: what it says, and what is refused with the field."""

from __future__ import annotations

from pathlib import Path

import pytest

from mainspring.domain.errors import InvalidInput
from mainspring.domain.oidc import roles_by_tenant
from mainspring.roles.provider_settings import files_of_providers, read_providers

LEAST = '[providers.company]\nissuer = "https://id.example.com"\nclient_id = "mainspring"\n'


def read(folder: Path, text: str) -> Path:
    path = folder / "oidc.toml"
    path.write_text(text)
    return path


def test_what_the_file_says(tmp_path: Path) -> None:
    (tmp_path / "oidc-secret").write_text("of the client\n")
    path = read(
        tmp_path,
        LEAST
        + 'client_secret_file = "oidc-secret"\nsession = "12h"\nmail_domains = ["Example.com"]\nlink_by_mail = true\n'
        '[[providers.company.roles]]\ngroup = "*"\ntenant = "default"\nrole = "viewer"\n'
        '[[providers.company.roles]]\ngroup = "ops"\ntenant = "default"\nrole = "operator"\n',
    )
    [found] = read_providers(path)
    assert (found.key, found.name, found.client_secret, found.session) == ("company", "company", "of the client", 43200)
    assert (found.mail_domains, found.scopes) == (("example.com",), ("openid", "profile", "email"))
    assert roles_by_tenant(found, frozenset()) == {"default": "viewer"}
    assert roles_by_tenant(found, frozenset({"ops"})) == {"default": "operator"}
    assert files_of_providers(path) == [path, tmp_path / "oidc-secret"]
    assert read_providers(None) == ()


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("providers = 7", "providers"),
        ("[providers.company]", "issuer"),
        ("nonsense", "cannot be read as TOML"),
        (LEAST + 'colour = "red"', "colour"),
        (LEAST.replace("https", "http"), "issuer"),
        (LEAST.replace("company", "Company"), "small letters"),
        (LEAST.replace('"mainspring"', '""'), "client_id"),
        (LEAST + 'scopes = ["email"]', "scopes"),
        (LEAST + "link_by_mail = true", "mail_domains"),
        (LEAST + "mail_trusted = true", "mail_domains"),
        (LEAST + 'session = "1s"', "session"),
        (LEAST + 'allow = "10.0.0.0/99"', "10.0.0.0/99"),
        (LEAST + 'client_secret = "x"\nclient_secret_file = "y"', "client_secret_file"),
        (LEAST + 'client_secret_file = "missing"', "client_secret_file"),
        (LEAST + '[[providers.company.roles]]\ngroup = "x"\ntenant = "default"\nrole = "god"', "god"),
        (LEAST + LEAST.replace("company", "other"), "same issuer"),
    ],
)
def test_a_mistake_is_named(tmp_path: Path, text: str, named: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        read_providers(read(tmp_path, text))
    assert named in str(refused.value) and refused.value.field == "oidc"


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="cannot be read"):
        read_providers(tmp_path / "missing.toml")
