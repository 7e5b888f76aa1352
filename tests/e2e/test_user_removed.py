"""A user who is removed while the agent runs, by the real command."""

import json

from tests.support.commands.household import Household


def test_an_agent_is_ended_and_everything_of_its_user_removed(household: Household) -> None:
    household.environment.update(
        OXYDRA_EMBEDDER__BACKEND="none",
        OXYDRA_SHELL__ENABLED="false",
        OXYDRA_CONTAINER__IMAGES="oxydra-none-of-these",
    )
    login = household.path / "home/config/oxydra/logins/default@docs"
    login.parent.mkdir(parents=True)
    login.write_text("{}")
    household.works("start", "--detach")
    household.said("remember that tea is at five")
    compared = json.loads(household.works("upgrade", "--check", "--json"))
    assert compared["up_to_date"] is True
    assert {"host of default", "agent of default"} <= {each["what"] for each in compared["found"]}

    refused = household.run("users", "remove", "default", "--yes")
    assert refused.returncode == 1
    assert "the agent of user default runs" in refused.stderr
    removed = household.works("users", "remove", "default", "--stop", "--yes")
    assert str(household.workspaces / "default") in removed
    assert household.settles()
    assert not login.exists()
    files = [path for path in household.path.rglob("*") if path.is_file()]
    assert [path for path in files if b"tea is at five" in path.read_bytes()] == []
    assert not (household.workspaces / "default").exists()
    assert "no users yet" in household.works("users", "list")
