"""Requests of OpenAI's API that nobody has thought of."""

import json
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from runner.openai.conversations import key_of
from runner.openai.requests import (
    Asked,
    BadRequest,
    body_of,
    chat_request,
    json_object,
    responses_request,
)

_NAMES = st.sampled_from(
    """
    messages input model stream stream_options tools role content type text function name
    description parameters tool_call_id call_id output metadata conversation previous_response_id
    instructions id background n tool_choice response_format include_usage refusal mode url
    json_schema schema format image_url allowed_tools
    """.split()  # noqa: SIM905 - readable as prose
)
_WORDS = st.sampled_from(
    """
    user assistant system tool function message function_call_output text required json_schema
    json_object allowed_tools image_url input_image
    """.split()  # noqa: SIM905 - readable as prose
)
_VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8) | _WORDS,
    lambda each: st.lists(each, max_size=4) | st.dictionaries(_NAMES, each, max_size=5),
    max_leaves=20,
)


@given(st.dictionaries(_NAMES, _VALUES, max_size=6))
@example({"messages": [{"role": "user", "content": [{"type": ["x"]}]}]})
@example({"input": [{"type": {"x": 1}}]})
@example({"input": "x", "metadata": {"a": "b"}, "tools": [{"type": "function"}]})
def test_a_request_is_read_or_refused_with_a_field(sent: dict[str, Any]) -> None:
    for read in (chat_request, responses_request):
        refused: BadRequest | None = None
        try:
            asked = read(json_object(json.dumps(sent).encode()))
        except BadRequest as error:
            refused = error
        if refused is None:
            assert isinstance(asked, Asked)
            assert asked.call is not None or key_of(asked.talk)
        else:
            assert refused.param
            assert json.dumps(body_of(refused))


@given(st.binary(max_size=64))
@example(b'{"input": "\\ud800"}')
@example(b"[" * 100_000)
def test_any_bytes_are_an_object_or_refused(body: bytes) -> None:
    refused: BadRequest | None = None
    try:
        sent = json_object(body)
    except BadRequest as error:
        refused = error
    if refused is None:
        assert json.dumps(sent, ensure_ascii=False).encode()
    else:
        assert refused.param == "body"
