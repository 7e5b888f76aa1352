"""The windows of models: how many tokens a request takes at most, together with its answer.

A server is asked before its model is used, until its figure is final; a refusal may teach another
one. Both are a server's data: a figure that no model has is ignored, and none raises what is
configured.
"""

import asyncio
import logging
from typing import Final, Protocol, runtime_checkable

log = logging.getLogger(__name__)

LEAST: Final = 1_024
MOST: Final = 10_000_000
"""The figures that are believed."""
_ASK_S: Final = 5.0
_MODELS_MAX: Final = 64
_READ_LEAST: Final = 0.4
"""The share of our estimate that any tokenizer makes of a request."""
_CUT_TIMES: Final = 2
_SHARE_OF_ANSWER: Final = 8
"""One part in so many of a server's window is left to the answer."""


@runtime_checkable
class KnowsWindow(Protocol):
    """A model whose server may say its window."""

    async def window(self) -> int:
        """In tokens; 0 if the server does not say. Raises what its library does."""


class Windows:
    """The windows in force, by the labels of models. `configured` is `context_window`."""

    def __init__(self, configured: int) -> None:
        self.configured = configured
        self._known: dict[str, int] = {}
        self._fitting: dict[str, int] = {}
        self._cut: dict[str, int] = {}
        self._asking = asyncio.Lock()

    def of(self, label: str) -> int:
        """How many tokens a request to the model may have, by our estimate."""
        known = self._known.get(label, 0)
        fits = self._fitting.get(label, known - known // _SHARE_OF_ANSWER)
        return min(self.configured, fits) if fits else self.configured

    def whole(self, label: str) -> int:
        """The model's window with the room for the answer, as far as it is used."""
        return min(self.configured, self._known.get(label) or self.configured)

    def known(self, label: str) -> int:
        """What the model's server says; 0 if it has said nothing."""
        return self._known.get(label, 0)

    def learn(self, label: str, tokens: int, fits: int = 0) -> bool:
        """Hold `tokens`, which the server has said (0: it has not), and what `fits` into it by our
        estimate, if that was found out. Returns whether it is believed."""
        if tokens and not LEAST <= tokens <= MOST:
            log.warning("a server says that the window of %s is %d tokens: ignored", label, tokens)
            return False
        if len(self._known) + len(self._fitting) > _MODELS_MAX:
            self._known, self._fitting, self._cut = {}, {}, {}
        if tokens and tokens != self._known.get(label):
            self._known[label] = tokens
            self._fitting.pop(label, None)
        if fits:
            self._fitting[label] = fits
        return True

    def is_cut(self, label: str, sent: int, read: int) -> bool:
        """Whether the model's server has cut requests without a word, of which it says how much it
        has `read`: far less than was sent, two times in a row. What it reads is what fits then."""
        suspect = LEAST <= read < sent * _READ_LEAST
        times = self._cut[label] = self._cut.get(label, 0) + 1 if suspect else 0
        if times == _CUT_TIMES:
            self.learn(label, 0, read)
        return times == _CUT_TIMES

    async def ask(self, label: str, model: object) -> None:
        """Ask the server of `model`, unless it has answered already. Never fails."""
        model = getattr(model, "wrapped", model)
        async with self._asking:
            known = label in self._known and getattr(model, "window_is_final", True)
            if known or not isinstance(model, KnowsWindow):
                return
            try:
                async with asyncio.timeout(_ASK_S):
                    tokens = await model.window()
            except Exception as error:
                log.info("the window of %s is not known: %s", label, type(error).__name__)
                return
            if not tokens or not self.learn(label, tokens):
                self._known[label] = 0
