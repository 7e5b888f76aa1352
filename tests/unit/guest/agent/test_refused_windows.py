"""What refusals say of the window, in the words of the servers."""

import pytest
from pydantic_ai.exceptions import FallbackExceptionGroup, ModelHTTPError

from guest.agent.models.errors import is_too_long, limits_in

LLAMA = {
    "code": 400,
    "message": "request (3231 tokens) exceeds the available context size (2048 tokens), try "
    "increasing it",
    "type": "exceed_context_size_error",
    "n_prompt_tokens": 3231,
    "n_ctx": 2048,
}
REFUSALS = {
    "llama.cpp": (LLAMA, (2048, 3231)),
    "openai": (
        "This model's maximum context length is 16385 tokens. However, your messages resulted in "
        "21012 tokens. Please reduce the length of the messages.",
        (16_385, 21_012),
    ),
    "openai's older words": (
        "This model's maximum context length is 4,097 tokens. However, you requested 5,093 tokens "
        "(4,093 in the messages, 1,000 in the completion).",
        (4097, 5093),
    ),
    "vllm": (
        "This model's maximum context length is 4096 tokens. However, your request has 5003 input "
        "tokens. Please reduce the length of the input messages.",
        (4096, 5003),
    ),
    "vllm's older words": (
        "The decoder prompt (length 5003) is longer than the maximum model length of 4096. Make "
        "sure that `max_model_len` is no smaller than the number of text tokens.",
        (4096, 5003),
    ),
    "lm studio": (
        "Trying to keep the first 5003 tokens when context the overflows. However, the model is "
        "loaded with context length of only 4096 tokens, which is not enough. Try to load the "
        "model with a larger context length, or provide a shorter input",
        (4096, 5003),
    ),
    "anthropic": ("prompt is too long: 208310 tokens > 200000 maximum", (200_000, 208_310)),
    "anthropic with its answer": (
        "input length and `max_tokens` exceed context limit: 188240 + 21333 > 200000, decrease "
        "input length or `max_tokens` and try again",
        (200_000, 0),
    ),
    "gemini": (
        "The input token count (1200007) exceeds the maximum number of tokens allowed (1048576).",
        (1_048_576, 1_200_007),
    ),
    "mistral": (
        "Prompt contains 40013 tokens and 0 draft tokens, too large for model with 32768 maximum "
        "context length",
        (32_768, 40_013),
    ),
    "one that says no figure": ("Please reduce the length of the messages or completion.", (0, 0)),
    "another refusal": ("model 'qwen3:4b' not found, try pulling it first", (0, 0)),
}


@pytest.mark.parametrize(("body", "figures"), REFUSALS.values(), ids=REFUSALS)
def test_the_figures_of_a_refusal_are_read(
    body: dict[str, object] | str, figures: tuple[int, int]
) -> None:
    said = body if isinstance(body, dict) else {"message": body}
    error = ModelHTTPError(400, "m", said)
    assert limits_in(error) == figures
    assert is_too_long(error) or not figures[0]
    both = FallbackExceptionGroup("all failed", [ModelHTTPError(500, "n", {}), error])
    assert limits_in(both) == figures
