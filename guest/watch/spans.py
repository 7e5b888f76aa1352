"""Steps of turns and calls, with how long they took, for the runner to export.

What a step tells is what it was and how it went: names, ids, counts. Nothing that a person or a
model wrote belongs into it; the runner drops every attribute that it does not know.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Final

from wire import trace
from wire.v1 import gateway_pb2 as pb

CAPACITY: Final = 2048
BATCH: Final = 256


@dataclass
class Step:
    """A step that runs. What is in it when it ends is told."""

    words: dict[str, str] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    failed: bool = False


class Spans:
    """Steps that have ended and that the runner has not taken yet; none while nobody wants them.

    Of more than `CAPACITY`, the oldest are lost, and counted.
    """

    def __init__(self) -> None:
        self.wanted = False
        self._ended: deque[pb.Span] = deque()
        self._lost = 0
        self.on_ended: Callable[[], None] = lambda: None

    @contextmanager
    def step(self, name: str, **words: str) -> Iterator[Step]:
        """What runs in the body, as a step of the one around it, or of the call that has arrived.
        Steps within it are told to the same place."""
        if not self.wanted:
            yield Step()
            return
        step, parent = Step(words), trace.here.get()
        place = trace.Place.below(parent)
        here, collecting = trace.here.set(place), _collecting.set(self)
        started, began = time.time_ns(), time.perf_counter_ns()
        try:
            yield step
        except asyncio.CancelledError:
            step.words.setdefault("outcome", "cancelled")
            raise
        except BaseException:
            step.failed = True
            raise
        finally:
            trace.here.reset(here)
            _collecting.reset(collecting)
            self._add(
                pb.Span(
                    trace_id=place.trace_id,
                    span_id=place.span_id,
                    parent_span_id=parent.span_id if parent is not None else b"",
                    name=name,
                    start_unix_nano=started,
                    end_unix_nano=started + time.perf_counter_ns() - began,
                    words=step.words,
                    counts={key: max(0, count) for key, count in step.counts.items()},
                    failed=step.failed,
                )
            )

    def take(self) -> pb.SpanBatch | None:
        """Some of them, oldest first; None if there are none."""
        if not (self._ended or self._lost):
            return None
        lost, self._lost = self._lost, 0
        count = min(BATCH, len(self._ended))
        return pb.SpanBatch(spans=[self._ended.popleft() for _ in range(count)], lost=lost)

    def _add(self, span: pb.Span) -> None:
        if len(self._ended) >= CAPACITY:
            self._ended.popleft()
            self._lost += 1
        self._ended.append(span)
        self.on_ended()


_collecting: ContextVar[Spans | None] = ContextVar("spans", default=None)


@contextmanager
def step(name: str, otherwise: Spans | None = None, **words: str) -> Iterator[Step]:
    """A step within one that `Spans.step` has begun; outside of any it is told to `otherwise`."""
    spans = _collecting.get() or otherwise
    if spans is None:
        yield Step()
        return
    with spans.step(name, **words) as made:
        yield made
