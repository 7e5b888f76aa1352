"""What a server answers, as the output of a tool: one text, which is material."""

import json
from typing import Final

import mcp_types as types
from wire.text import visible

from guest.errors import ToolError
from guest.tools.base import ToolOutput

_TEXT_MAX_CHARS: Final = 200_000
_ERROR_MAX_CHARS: Final = 2_000
_PARTS_MAX: Final = 200
_URI_MAX_CHARS: Final = 500


def output(result: types.CallToolResult, material: str) -> ToolOutput:
    """The answer without what cannot be shown as text, which is named in notes.

    Raises `ToolError` with what the server said, if it says that the call failed.
    """
    texts, left_out = [], []
    for part in result.content[:_PARTS_MAX]:
        text, name = _shown(part)
        texts += [text] if text else []
        left_out += [f"{name} is not shown"] if name else []
    if len(result.content) > _PARTS_MAX:
        left_out.append(f"only the first {_PARTS_MAX} of {len(result.content)} parts are shown")
    if not texts and result.structured_content is not None:
        texts.append(json.dumps(result.structured_content, ensure_ascii=False))
    whole = "\n".join(texts)
    text = visible(whole[:_TEXT_MAX_CHARS])
    if len(whole) > _TEXT_MAX_CHARS:
        left_out.append(f"only its first {_TEXT_MAX_CHARS} characters")
    if result.is_error:
        raise refused(text or "it did not say why", material)
    first = next(iter(text.splitlines()), "")
    return ToolOutput(
        {"content": text},
        notes=tuple(left_out),
        summary=first or "an empty answer",
        material=(material,),
        printed=(text,),
    )


def refused(said: str, material: str) -> ToolError:
    """The error with which a server answered."""
    words = visible(said[:_ERROR_MAX_CHARS])[:_ERROR_MAX_CHARS]
    return ToolError(f"the server answered with an error: {words}", material=(material,))


def _shown(part: types.ContentBlock) -> tuple[str, str]:
    """A part's text, or the name of what is not shown."""
    match part:
        case types.TextContent():
            return part.text, ""
        case types.EmbeddedResource(resource=types.TextResourceContents() as resource):
            return resource.text, ""
        case types.ResourceLink():
            return f"[link: {str(part.uri)[:_URI_MAX_CHARS]}]", ""
        case types.ImageContent() | types.AudioContent():
            kind = part.mime_type[:_URI_MAX_CHARS]
            return "", f"a part of type {kind} with {len(part.data) * 3 // 4} bytes"
        case _:
            return "", "a part of another type"
