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
    turns of the session the model is shown.
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
