"""The text of a new configuration file."""

import json
from collections.abc import Mapping
from typing import Final

from wire.providers import OFFLINE, PROVIDERS

_HEAD: Final = """\
# Settings of Oxydra. Each has a default: `runner config show` lists them all and says where they
# come from, and docs/guide/configuration.md what they mean. After a change: runner restart
"""
_EXPLAINED: Final[Mapping[str, str]] = {
    "provider": f'who answers: "{OFFLINE}" (built in, knows a few commands), '
    + ", ".join(f'"{name}"' for name in PROVIDERS),
    "model": "the provider's name of the model",
    "api_key_env": "the NAME of the runner's variable that holds the key, never the key itself",
    "base_url": "another server that speaks the provider's protocol, such as Ollama",
}
_TAIL: Final = """
# What one user has otherwise:
# [users.alice.agent]
# model = "…"
"""


def template(tier: str = "container", agent: Mapping[str, str] | None = None) -> str:
    """A configuration file with comments. Settings of `[agent]` that are not given are commented
    out."""
    given = agent or {}
    lines = [
        _HEAD,
        '# how guests are confined: "container", "micro_vm", or "process", which has to be asked',
        "# for with --insecure at each start, because no container is around the agent there",
        f"tier = {json.dumps(tier)}",
        "",
        "[agent]",
    ]
    for name, meaning in _EXPLAINED.items():
        value = given.get(name, "")
        sign = "" if value else "# "
        lines += [f"# {meaning}", f"{sign}{name} = {json.dumps(value, ensure_ascii=False)}"]
    return "\n".join(lines) + "\n" + _TAIL
