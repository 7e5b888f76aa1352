"""A provider that refuses the key, and the command that its refusal names."""

import os
import signal

from tests.support.commands.household import Household
from tests.support.servers import openai_server as provider
from tests.support.servers.openai_server import Reply
from tests.support.servers.scripted_provider import Seen, scripted

OLD, NEW = "sk-test-old-0123456789abcdef", "sk-test-new-fedcba9876543210"


def with_the_new_key(seen: Seen) -> Reply:
    if seen.key != NEW:
        return provider.error("401 Unauthorized", f"Incorrect API key provided: {seen.key}")
    if "quote" in seen.messages[-1]["content"]:
        return provider.error("400 Bad Request", f"your key is {seen.key}")
    return provider.says("Hello.")


def test_a_refused_key_is_replaced_while_the_agent_runs(household: Household) -> None:
    with scripted() as model:
        model.play(*[with_the_new_key] * 6)
        household.environment |= {
            "OXYDRA_AGENT__PROVIDER": "openai",
            "OXYDRA_AGENT__MODEL": "m",
            "OXYDRA_AGENT__BASE_URL": model.base_url,
            "OXYDRA_AGENT__API_KEY_ENV": "THE_KEY",
            "OXYDRA_EMBEDDER__BACKEND": "none",
            "OXYDRA_SHELL__ENABLED": "false",
            "THE_KEY": OLD,
            "OTHER": NEW,
        }
        household.works("--user", "alice", "start", "--detach")
        refused = household.run("--user", "alice", "chat", stdin="hi\n")
        assert refused.returncode == 1
        assert "refused the API key" in refused.stdout
        assert 'the provider says: "Incorrect API key provided: ' in refused.stdout
        assert "fix: runner --user alice credentials set --provider openai" in refused.stdout
        asked = household.run("--user", "alice", "ask", "hi")
        assert 'the provider says: "Incorrect API key provided: ' in asked.stderr
        assert "fix: runner --user alice credentials set --provider openai" in asked.stderr

        in_the_open = household.run("--user", "alice", "credentials", "set", NEW)
        assert in_the_open.returncode == 1
        assert "a key must not stand in the command line" in in_the_open.stderr
        set_key = ("credentials", "set", "--provider", "openai", "--from-env", "OTHER")
        assert "in use from the next request on" in household.works("--user", "alice", *set_key)
        answered = household.works("--user", "alice", "chat", stdin="hi\n")
        assert "Hello." in answered
        quoted = household.run("--user", "alice", "chat", stdin="quote it\n")
        assert 'the provider says: "your key is ' in quoted.stdout

        (guest,) = household.guest_pids("guest.app")
        os.kill(guest, signal.SIGKILL)
        assert "Hello." in household.works("--user", "alice", "chat", stdin="hi\n")
        listed = household.works("--user", "alice", "credentials", "list")
        assert "the environment variable OTHER, set 20" in listed
        cleared = household.works("--user", "alice", "credentials", "clear")
        assert "the key of openai is forgotten" in cleared
        again = household.run("--user", "alice", "chat", stdin="hi\n")
        assert "refused the API key" in again.stdout

        everywhere = [refused.stdout, asked.stderr, quoted.stdout, again.stdout]
        everywhere += [in_the_open.stdout, in_the_open.stderr, answered, listed]
        everywhere += [
            path.read_text(errors="replace") for path in household.path.rglob("*") if path.is_file()
        ]
        assert not any(key in text for text in everywhere for key in (OLD, NEW))
        household.stop("alice")
