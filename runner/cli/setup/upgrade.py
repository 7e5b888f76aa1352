"""`runner upgrade --check`: what runs in another version than the installed one, and what to do."""

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib.metadata import version as installed_version
from typing import Final

import docker
import typer
from wire.errors import Code, WireError

from runner.cli.agent import connect_agent, connect_if_running, start_command
from runner.cli.options import Options
from runner.cli.output import Shape, print_json
from runner.config.models import Config
from runner.config.users import known_users
from runner.errors import HostError
from runner.images.archive import list_images
from runner.images.pruning import old_images
from runner.tiers.container.engine import Engine
from runner.tiers.container.names import LABEL_VERSION
from runner.tiers.drivers import tier_of


@dataclass(frozen=True)
class Installed:
    """Something with a version, and what to do if that is not the installed one; empty if nothing
    is to be done. `version` is empty for what is missing."""

    what: str
    version: str
    todo: str = ""


VERSIONS: Final = Shape[Installed](
    {
        "what": lambda each: each.what,
        "version": lambda each: each.version or "(none)",
        "to do": lambda each: each.todo,
    }
)


def upgrade(options: Options, *, check: bool, as_json: bool) -> int:
    """Compare what runs with what is installed. Changes nothing, and asks nobody outside this
    machine. Returns 0 if all is of one version, else 1.

    Raises `HostError` without `check`: whoever installed the program brings a new version.
    """
    if not check:
        raise HostError(
            Code.INVALID_ARGUMENT,
            "runner upgrade changes nothing by itself",
            details="a new version comes from where this one came from",
            resolution="install it as the guide to operation says, then: runner upgrade --check",
        )
    config = options.load()
    installed = installed_version("oxydra")
    found = [*asyncio.run(_running(options, config, installed)), *_in_the_engine(config, installed)]
    behind = any(each.todo for each in found)
    if as_json:
        content = list(map(VERSIONS.as_json, found))
        print_json({"installed": installed, "up_to_date": not behind, "found": content})
        return int(behind)
    typer.echo(f"installed: oxydra {installed}")
    if found:
        VERSIONS.show(found, json=False)
    if not behind:
        typer.echo("nothing is of another version")
    return int(behind)


async def _running(options: Options, config: Config, installed: str) -> list[Installed]:
    """Every host that runs, and its agent."""
    found = []
    for user_id in known_users(config):
        if (control := await connect_if_running(config, user_id)) is None:
            continue
        theirs = replace(options, user_id=user_id)
        again = f"{theirs.command('stop')} && {start_command(theirs, config)}"
        async with control:
            host = await control.status()
        todo = "" if host.version == installed else again
        found.append(Installed(f"host of {user_id}", host.version, todo))
        with suppress(WireError):
            async with await connect_agent(config, user_id, resolution="") as agent:
                todo = "" if agent.hello.version == installed else again
                found.append(Installed(f"agent of {user_id}", agent.hello.version, todo))
    return found


def _in_the_engine(config: Config, installed: str) -> Iterator[Installed]:
    """Images, and containers that run. Without an engine there are none; where this configuration
    needs one, that is said."""
    engine = Engine(config.container.engine)
    try:
        with engine.client() as client:
            yield from _images_and_containers(client, config, installed)
    except WireError as error:
        if tier_of(config).images:
            yield Installed("container engine", "", f"{error.brief}: runner doctor")


def _images_and_containers(
    client: docker.APIClient, config: Config, installed: str
) -> Iterator[Installed]:
    prefix = config.container.images
    old = old_images(client, prefix)
    images = list_images(client, prefix)
    if tier_of(config).images or old or any(image.image_id for image in images):
        for image in images:
            if image.image_id is None:
                yield Installed(f"image {prefix}-{image.role}", "", "runner images build")
            else:
                yield Installed(f"image {prefix}-{image.role}", installed)
    for each in old:
        yield Installed(f"image {each.name}", each.version, "runner images prune")
    for container in client.containers(filters={"label": LABEL_VERSION}):
        name, version = container["Names"][0].lstrip("/"), container["Labels"][LABEL_VERSION]
        todo = "" if version == installed else "stop and start the host that runs it"
        yield Installed(f"container {name}", version, todo)
