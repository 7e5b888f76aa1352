"""People, as the operator adds, invites and removes them: each has an agent of their own."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from wire.errors import Code, WireError

from runner.access.tokens import Tokens
from runner.config.models import Config
from runner.config.user_id import check_user_id
from runner.config.users import check_servers, known_users
from runner.errors import HostError
from runner.host.removal import belongings, remove
from runner.serve.login.links import Links
from runner.serve.operator.record import Asked, text_in, user_in
from runner.serve.push.subscriptions import Subscriptions
from runner.tiers.drivers import tier_of
from runner.workspace.configuration_file import Changes
from runner.workspace.workspace import Workspace


@dataclass(repr=False, eq=False)
class People:
    """Answers what the operator asks about people.

    Args:
        addresses: What browsers call the server by, those of other machines first.
        change: Changes settings in the configuration file; see `SettingsFile`.
        stop: Stops a user's host, if it runs.
    """

    config: Config
    tokens: Tokens
    links: Links
    addresses: Sequence[str]
    change: Callable[[Changes, bool], object]
    stop: Callable[[str], Awaitable[None]]

    async def add(self, asked: Asked) -> dict[str, Any]:
        """`AddUser`: makes a place for a new person. `Start` starts their agent."""
        user_id = check_user_id(text_in(asked, "user_id"))
        if user_id in known_users(self.config):
            raise HostError(
                Code.ALREADY_EXISTS,
                f"there is a user {user_id} already",
                resolution="choose another name",
            )
        check_servers(self.config, user_id)
        with Workspace.locate(self.config, user_id).held():
            return {"user_id": user_id}

    async def invite(self, asked: Asked) -> dict[str, Any]:
        """`Invite`: a link that lets this person in, once. An earlier one does not any more."""
        secret, until = self.links.invite(user_in(asked, self.config))
        return {
            "links": [f"{address}/#link={secret}" for address in self.addresses],
            "until": datetime.fromtimestamp(until, UTC).isoformat(timespec="seconds"),
        }

    async def belongings(self, asked: Asked) -> dict[str, Any]:
        """`ListBelongings`: what a removal of this person deletes, and what stays."""
        user_id = user_in(asked, self.config)
        found = await asyncio.to_thread(belongings, self.config, user_id)
        return {
            "parts": [
                {"what": each.what, "path": str(each.path), "size": each.size}
                for each in found.parts
            ],
            "engine_objects": found.engine_objects,
            "tokens": [each.name for each in self.tokens.all() if each.user_id == user_id],
            "settings": found.has_settings,
            "stays": found.elsewhere,
        }

    async def remove(self, asked: Asked) -> dict[str, Any]:
        """`RemoveUser`: removes what `ListBelongings` names. `confirm` repeats the user id."""
        user_id = user_in(asked, self.config)
        if text_in(asked, "confirm") != user_id:
            raise WireError(
                Code.INVALID_ARGUMENT,
                "confirm must repeat the user id",
                details=f"accepted: {user_id}",
            )
        await tier_of(self.config).require_active(self.config)
        await remove_user(self.config, user_id, self.tokens, self.links, self.stop)
        if user_id in self.config.users:
            await asyncio.to_thread(self.change, {("users", user_id): None}, True)
            self.config.users.pop(user_id)  # of all parts of the server
        return {}


async def remove_user(
    config: Config,
    user_id: str,
    tokens: Tokens,
    links: Links,
    stop: Callable[[str], Awaitable[None]],
) -> None:
    """Remove everything of a user on this machine, and end what gives access to it. `stop` stops
    the user's host, if it runs."""
    links.withdraw(user_id)
    Subscriptions(config.workspace_root).end_user(user_id)
    if any(token.user_id == user_id for token in tokens.all()):
        tokens.revoke(user_id)  # first, so that nobody has a way to a later user of this name
    await stop(user_id)
    await asyncio.to_thread(lambda: asyncio.run(remove(config, user_id)))
