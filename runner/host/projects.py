"""What a person has opened as a project, besides those of the settings, until the host ends."""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from pydantic import ValidationError
from wire.errors import Code
from wire.settings import ProjectSettings, WorkspaceSettings
from wire.v1 import control_pb2

from runner.client.gateway import GatewayClient
from runner.errors import HostError
from runner.projects.project import Project, name_for

STARTED_ANEW: Final = (
    "the agent and its shell have started anew: commands and MCP servers that ran there have ended"
)
NONE_HERE: Final = "there are no projects here: the guests of a cluster see volumes alone"
_ACCEPTED: Final = {
    "path": "the whole path of a directory",
    "name": "up to 64 letters, digits, . _ and -",
}


class Wanted(NamedTuple):
    """What somebody wants to open, by the name that it has or gets."""

    name: str
    settings: ProjectSettings


def wanted(
    request: Mapping[str, Any], known: Mapping[str, ProjectSettings], opened: Collection[str]
) -> Wanted:
    """What a request of the control's contract asks for. `known` are all projects of the user by
    name, `opened` the names of those that are not of the settings.

    A directory that is known keeps its name, and gains what it lacks. Raises `HostError`.
    """
    path, name = Path(request["path"]), str(request["name"])
    same = next((each for each, its in known.items() if its.path == path), "")
    name = name or same or name_for(path, known)
    if name in known and known[name].path != path:
        raise HostError(
            Code.ALREADY_EXISTS,
            f"/projects/{name} is {known[name].path}",
            resolution=f"runner projects close {name}"
            if name in opened
            else "give the other one a name: runner projects open DIR --name NAME",
        )
    before = known.get(name)
    try:
        settings = ProjectSettings(
            path=path,
            write=request["write"] or (before is not None and before.write),
            hide=_joined(before.hide if before else (), request["hide"]),
            lift=_joined(before.lift if before else (), request["lift"]),
            notes=before.notes if before else "general",
        )
        WorkspaceSettings(projects={**known, name: settings})
    except ValidationError as error:
        first = error.errors()[0]
        field = next((str(each) for each in first["loc"] if str(each) in request), "projects")
        raise HostError(
            Code.INVALID_ARGUMENT,
            f"{field}: {first['msg']}",
            details=f"accepted: {_ACCEPTED.get(field, 'paths below the project; 16 projects')}",
        ) from None
    return Wanted(name, settings)


def _joined(first: Sequence[str], then: Sequence[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*first, *then)))


def not_opened(name: str, opened: Collection[str]) -> HostError:
    """Why a project cannot be closed that is not open."""
    return HostError(
        Code.NOT_FOUND,
        f"no project {name[:64]} is open",
        details=f"open are: {', '.join(opened) or 'none'}",
        resolution="runner projects list",
    )


async def refuse_during_turns(agent: GatewayClient) -> None:
    """Raises `HostError` (UNAVAILABLE) while the agent answers, with what it does."""
    running = await agent.list_turns(running_only=True)
    if running:
        raise HostError(
            Code.UNAVAILABLE,
            "a turn runs, and the agent has to start anew",
            details=f"in {', '.join(dict.fromkeys(turn.session_id for turn in running))}",
            resolution="wait for its end, or end it where it runs, in a chat by Ctrl-C",
        )


def described(project: Project, *, configured: bool) -> control_pb2.OpenedProject:
    """How a project stands, for people."""
    return control_pb2.OpenedProject(
        name=project.name,
        path=str(project.path),
        writable=project.writable,
        reason=project.reason,
        walls=project.walls if project.writable else (),
        hidden=project.hidden,
        configured=configured,
    )
