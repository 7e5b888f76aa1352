"""What the agent may do and which model answers, already checked by `guest.config`."""

from dataclasses import dataclass, field
from typing import Final, Literal, get_args

Provider = Literal["offline", "openai", "anthropic", "google"]
PROVIDERS: Final[tuple[Provider, ...]] = get_args(Provider)


@dataclass(frozen=True)
class AgentSettings:
    """The `[agent]` section of the runner's configuration, as one guest got it.

    `max_steps` bounds the model requests of one turn, `max_tokens` their tokens
    in and out, `turn_timeout_s` its seconds; `history_turns` is how many earlier
    turns of the session the model is shown word by word.

    `context_window` is how many tokens fit into one request. Where the turns shown
    take more than `summary_trigger` of it, the oldest of them are summarised until the
    rest takes no more than `summary_target` of it; the last `summary_min_turns` turns
    are never summarised.
    """

    provider: Provider = "offline"
    model: str = ""
    base_url: str = ""
    api_key: str = field(default="", repr=False)
    instructions: str = ""
    max_steps: int = 20
    max_tokens: int = 200_000
    turn_timeout_s: float = 300.0
    history_turns: int = 20
    context_window: int = 64_000
    summary_trigger: float = 0.7
    summary_target: float = 0.4
    summary_min_turns: int = 4
