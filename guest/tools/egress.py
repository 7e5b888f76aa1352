"""The tool with which the model asks for hosts that its commands were refused."""

from typing import Annotated

from pydantic import Field
from wire.limits import PROPOSED_HOSTS_MAX
from wire.v1 import gateway_pb2 as pb

from guest.tools.base import Arguments, Safety, Tool, ToolContext, ToolOutput
from guest.watch import CallReporter


class ProposeArguments(Arguments):
    reason: str = Field(min_length=1, max_length=300, description="What for, in one sentence.")
    hosts: list[Annotated[str, Field(max_length=300)]] = Field(
        min_length=1, max_length=PROPOSED_HOSTS_MAX, description="Those that were refused."
    )


def proposing_tool(witness: CallReporter) -> Tool:
    """The tool. The runner, which hears `witness`, checks what is asked for and asks a person."""

    async def run(context: ToolContext, asked: ProposeArguments) -> ToolOutput:
        turn = {"session_id": context.session_id, "turn_id": context.turn_id}
        told = await witness.propose(pb.EgressProposal(**asked.model_dump(), **turn))
        return ToolOutput({"answer": told}, summary=told)

    return Tool(
        name="egress_propose",
        description="Ask the user to open hosts to commands, after egress has refused them in this "
        "conversation because no rule allows them. The user sees what was refused and what would "
        "open, and decides. Then run the command again. After a no, do not ask again.",
        arguments=ProposeArguments,
        safety=Safety.SIDE_EFFECTING,
        timeout=60.0,  # without the time in which a person is asked
        run=run,
        in_turn=True,
    )
