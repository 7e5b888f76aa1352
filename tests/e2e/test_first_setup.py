"""From `runner init` to an answer, with a provider that plays a script."""

from collections.abc import Iterator

import pytest

from tests.support.commands.household import Household
from tests.support.servers import openai_server as provider
from tests.support.servers.scripted_provider import Script, calls, says, scripted

KEY = "sk-test-0123456789abcdef"
NO_MODEL = {"OXYDRA_EMBEDDER__BACKEND": "none", "OXYDRA_SHELL__ENABLED": "false"}


@pytest.fixture
def script() -> Iterator[Script]:
    with scripted() as running:
        yield running


def test_a_first_configuration_is_tried_and_answers(household: Household, script: Script) -> None:
    household.environment.update(NO_MODEL, MY_KEY=KEY)
    settings = ("--provider", "openai", "--model", "m", "--key-env", "MY_KEY")
    words = ("init", *settings, "--base-url", script.base_url)
    script.play(lambda _: provider.error("401 Unauthorized", f"bad key {KEY}"))
    refused = household.run(*words)
    assert refused.returncode == 1
    assert "refused the API key" in refused.stderr
    file = household.path / "home" / "config" / "oxydra" / "runner.toml"
    assert not file.exists()
    script.play(calls("ready", word="yes"))
    assert "begin     runner --insecure chat" in household.works(*words)
    assert len(script.seen) == 2
    assert KEY not in file.read_text()

    script.play(says("Tea is ", "at five."))
    asked = household.run("ask", "when is tea?", stdin="five past four\n")
    assert (asked.returncode, asked.stdout) == (0, "Tea is at five.\n"), asked.stderr
    assert script.seen[-1].messages[-1]["content"].endswith("when is tea?\n\nfive past four")
    assert household.left_behind() == []


@pytest.fixture
def containers() -> Iterator[Household]:
    made = Household(containers=True)
    yield made
    made.remove()


@pytest.mark.docker
def test_in_containers_the_trial_takes_the_way_of_the_guests(containers: Household) -> None:
    """What this machine can reach, and a guest cannot, does not pass."""
    containers.environment.update(NO_MODEL, MY_KEY=KEY)
    words = ("init", "--provider", "openai", "--model", "m", "--key-env", "MY_KEY", "--base-url")
    file = containers.path / "home" / "config" / "oxydra" / "runner.toml"
    with scripted() as script:
        script.play(calls("ready", word="yes"))
        refused = containers.run(*words, script.base_url)
        assert refused.returncode == 1
        assert "provider 'openai'" in refused.stderr
        assert "asked from here" not in refused.stderr
        assert script.seen == []
        assert not file.exists()
        file.parent.mkdir(parents=True)
        file.write_text(f'[egress]\nhost_loopback = ["{script.base_url}"]\n')
        assert "begin     runner" in containers.works(*words, script.base_url)
        assert [each.key for each in script.seen] == [KEY]
    assert f'base_url = "{script.base_url}"' in file.read_text()
    assert containers.left_behind() == []
