"""Where commands have placeholders, egress has the values of the runner's variables."""

import pytest
from wire.settings import EgressCredentialSettings

from runner.egress.configuration import Placeholders, read_credentials
from runner.errors import ConfigError

GITHUB = EgressCredentialSettings(
    env="TOKEN", hosts=("github.com", "git.example.org:8443"), variable="GITHUB_TOKEN"
)
NETRC = EgressCredentialSettings(
    env="TOKEN",
    hosts=("github.com",),
    methods=("GET",),
    place="basic",
    file=".netrc",
    content="machine github.com login me password {placeholder}\n",
)
BOTH = {"github": GITHUB, "netrc": NETRC}
VALUE = "ghp_1234567890"


def test_commands_get_placeholders_that_stay_and_egress_gets_values() -> None:
    placeholders = Placeholders()
    environment = placeholders.environment(BOTH)
    files = placeholders.files(BOTH)
    github, netrc = read_credentials(BOTH, placeholders, {"TOKEN": VALUE})
    assert environment == {"GITHUB_TOKEN": github.placeholder}
    assert files == {
        ".netrc": f"machine github.com login me password {netrc.placeholder}\n".encode()
    }
    assert github.placeholder.startswith("oxydra-credential-github-")
    assert github.placeholder != netrc.placeholder
    assert len(github.placeholder) >= len("oxydra-credential-github-") + 24
    assert (github.value, github.place, list(github.hosts)) == (VALUE, "bearer", [*GITHUB.hosts])
    assert (netrc.value, netrc.place, list(netrc.methods)) == (VALUE, "basic", ["GET"])
    assert VALUE not in str(environment) + str(files)
    again = read_credentials({"github": GITHUB}, placeholders, {"TOKEN": "another-value"})[0]
    assert again.placeholder == github.placeholder
    assert Placeholders()["github"] != github.placeholder


@pytest.mark.parametrize(
    ("environ", "said"),
    [
        ({}, "the environment variable TOKEN is not set"),
        ({"TOKEN": "  "}, "the environment variable TOKEN is not set"),
        ({"TOKEN": "tiny-1"}, "the value of the environment variable TOKEN is too short"),
        ({"TOKEN": "two\nlines-of-it"}, "the environment variable TOKEN holds something that is"),
    ],
)
def test_a_value_that_cannot_be_one_is_told_by_its_variable(
    environ: dict[str, str], said: str
) -> None:
    with pytest.raises(ConfigError) as raised:
        read_credentials({"github": GITHUB}, Placeholders(), environ)
    assert raised.value.brief.startswith(said)
    assert not any(value.strip() and value in str(raised.value) for value in environ.values())
