"""`runner approvals`: what a person has allowed for more than one call."""

from typing import Annotated, Final

import typer
from wire.v1 import gateway_pb2

from runner.cli.agent import ask_agent, find_grant, find_session
from runner.cli.command_tree import session_ids
from runner.cli.options import AsJson
from runner.cli.output import Shape, local_day, one_line
from runner.client.gateway import GatewayClient

approvals = typer.Typer()

GRANTS: Final = Shape[gateway_pb2.Grant](
    {
        "id": lambda grant: one_line(grant.grant_id),
        "given": lambda grant: local_day(grant.given_at),
        "through": lambda grant: one_line(grant.channel),
        "for": lambda grant: one_line(grant.scope),
        "allowed": lambda grant: one_line(grant.text),
    },
    "grant_id scope text given_at channel",
)
NONE: Final = "nothing is allowed for more than one call"


@approvals.command("list")
def list_(
    context: typer.Context,
    session: Annotated[
        str, typer.Option(help="Only those of this session.", autocompletion=session_ids)
    ] = "",
    json: AsJson = False,
) -> None:
    """List what is allowed, and since when."""

    async def listed(agent: GatewayClient) -> list[gateway_pb2.Grant]:
        return await agent.list_grants(session and await find_session(agent, session))

    GRANTS.show(ask_agent(context.obj, listed), json=json, none=NONE)


@approvals.command()
def withdraw(
    context: typer.Context,
    grant: Annotated[str, typer.Argument(metavar="ID", help="As `list` shows it, or its start.")],
) -> None:
    """Take back what was allowed; from the next call on you are asked again."""
    done = ask_agent(context.obj, lambda agent: withdrawn(agent, grant))
    typer.echo(f"withdrawn: {one_line(done.text)}")


async def withdrawn(agent: GatewayClient, given: str) -> gateway_pb2.Grant:
    """Take back the grant that `given` names. Raises `WireError` where that is not one."""
    grant = await find_grant(agent, given)
    await agent.withdraw_grant(grant.grant_id)
    return grant
