"""The one prompt: what the agent knows about its user, or about a topic."""

from typing import Final

import mcp_types as types
from wire.errors import Code, WireError
from wire.text import visible_name
from wire.v1 import gateway_pb2

from runner.client.gateway import GatewayClient
from runner.mcp.notes import may_read, told

ABOUT_ME: Final = "about-me"
_NOTES_MAX: Final = 50
_FOUND_MAX: Final = 20


async def list_prompts(agent: GatewayClient) -> types.ListPromptsResult:
    """The prompts of a caller who may read notes; none for others."""
    if not await may_read(agent):
        return types.ListPromptsResult(prompts=[])
    topic = types.PromptArgument(
        name="topic", description="Only what belongs to this topic.", required=False
    )
    about_me = types.Prompt(
        name=ABOUT_ME,
        title="What do you know about me?",
        description="Asks what is remembered about the person, with the notes that say it.",
        arguments=[topic],
    )
    return types.ListPromptsResult(prompts=[about_me])


async def get_prompt(
    agent: GatewayClient, params: types.GetPromptRequestParams
) -> types.GetPromptResult:
    """The question, and the notes: those on the topic, else the newest."""
    if params.name != ABOUT_ME:
        raise WireError(
            Code.NOT_FOUND,
            f"there is no prompt {visible_name(params.name[:200])}",
            details=f"there is {ABOUT_ME}",
        )
    topic = (params.arguments or {}).get("topic", "").strip()
    if topic:
        question = f"What do you know about me concerning {topic}?"
        search = gateway_pb2.SearchNotesRequest(query=topic, top_k=_FOUND_MAX, for_model=True)
        found = list((await agent.search_notes(search)).notes)
    else:
        question = "What do you know about me?"
        listing = gateway_pb2.ListNotesRequest(limit=_NOTES_MAX, for_model=True)
        found = list((await agent.list_notes(listing)).notes)
    notes = "\n".join(f"- {told(note)} [id: {note.note_id}]" for note in found)
    text = f"{question} Answer from these notes of your memory, and from nothing else:\n{notes}"
    if not found:
        text = f"{question} Your memory has no note on it: say so."
    return types.GetPromptResult(
        messages=[types.PromptMessage(role="user", content=types.TextContent(text=text))]
    )
