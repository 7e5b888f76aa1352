"""The faults, and how each is made: one after the other on memories in use."""

import asyncio
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final, Literal

from guest.memory.memory import Memory
from tests.faults import seeds
from tests.faults.beside import EmbedderProcess, Network, embedder
from tests.faults.children import Child
from tests.faults.ledger import Ledger, Tally
from tests.faults.stores import Place, RemotePlace, Stores
from tests.faults.worker import USER, Task
from tests.support.crashing.killing import Line, times
from tests.support.memory.migrations import LATER
from tests.support.memory.model import MemoryModel
from tests.support.memory.store import FakeEmbedder
from tests.support.servers.bad_network import Fault as Strike
from tests.support.servers.sqld import Sqld

_ROUNDS_PER_PLACE: Final = 30
_ROUNDS_PER_IMPORT: Final = 3
_ROUNDS_PER_LIFE: Final = 5
_LONGEST_LIFE: Final = 8
_MOMENT_S: Final = 0.03
_IMPATIENT_S: Final = 0.3
"""A request's time where answers are held back: short, so that it often ends."""
_PATIENCE_S: Final = 120.0


@dataclass
class Lane:
    """Rounds of one fault on one store, one after the other."""

    stores: Stores
    rounds: int
    chance: random.Random
    tally: Tally = field(default_factory=Tally)

    def seed(self) -> int:
        return self.chance.getrandbits(32)

    def moment(self, longest_s: float = _MOMENT_S) -> float:
        """Any number of seconds up to this one, to stop in the middle of something."""
        return self.chance.random() * longest_s

    def outage(self) -> float:
        """Some seconds without a server: few that retries bridge, or more."""
        return self.moment(self.chance.choice([_MOMENT_S, 4 * _IMPATIENT_S]))

    def live(self, child: Child) -> None:
        """Let a guest do some of its work, and begin some more."""
        child.listen(_PATIENCE_S, times(self.chance.randrange(_LONGEST_LIFE) + 1, "did"))
        child.listen(self.moment())


@dataclass(frozen=True)
class Fault:
    """One row of the table. `weight` is its part of all rounds."""

    name: str
    store: Literal["local", "sqld"]
    weight: int
    make: Callable[[Lane], None]


def kill_guests(lane: Lane, work: str) -> None:
    """SIGKILL of the guest at any moment of its life, also while it opens the store."""
    for number in range(lane.rounds):
        if number % _ROUNDS_PER_PLACE == 0:
            place: Place = lane.stores.place()
            ledger = Ledger(lane.tally)
        child = Child(_task(lane, place, work, ledger), ledger.read)
        if lane.chance.random() < 0.9:
            lane.live(child)
        else:
            child.listen(lane.moment())
        child.kill()
        lane.tally.rounds += 1
        ledger.settle(place.look(ledger.removed))


def kill_migrating(lane: Lane) -> None:
    """SIGKILL of a guest of a later version that opens a memory."""
    longest = 0.0
    filled = lane.stores.place()
    before = seeds.filled(filled, notes=24, sessions=12)
    files = lane.stores.left(filled)
    for _ in range(lane.rounds + 1):
        place = lane.stores.place(like=files)
        ledger = Ledger(lane.tally)
        ledger.memory = MemoryModel(dict(before.notes), dict(before.sessions))
        place.migrations = LATER
        child = Child(_task(lane, place, "migration", Ledger(Tally())), ledger.read)
        child.listen(_PATIENCE_S, _will_work)
        longest = _end_within(lane, child, longest, _is_open)
        ledger.settle(place.look(ledger.removed))


def kill_importing(lane: Lane) -> None:
    """SIGKILL of a guest that reads an export in, over and over until it is done."""
    lines, imported = seeds.exported(notes=120, sessions=40)
    longest = 0.0
    for number in range(lane.rounds + 1):
        if number % _ROUNDS_PER_IMPORT == 1 or number == 0:
            place: Place = lane.stores.place()
            ledger = Ledger(lane.tally)
            ledger.imported = imported
        child = Child(_task(lane, place, "import", ledger, source=lines), ledger.read)
        child.listen(_PATIENCE_S, _is_open)
        longest = _end_within(lane, child, longest, _is_work)
        ledger.settle(place.look(ledger.removed))


def _end_within(lane: Lane, child: Child, longest: float, until: Callable[[Line], bool]) -> float:
    """Kill a guest at any moment of what takes `longest` seconds. Where that is not known
    yet, see how long it takes; that is no round."""
    began = time.monotonic()
    if longest:
        child.listen(lane.moment(1.5 * longest))
        lane.tally.rounds += 1
    else:
        assert child.listen(_PATIENCE_S, until)
        longest = time.monotonic() - began
    child.kill()
    return longest


def kill_reembedding(lane: Lane) -> None:
    """SIGKILL of a guest whose embedder has another model at each start; at the end of each
    memory all its passages must come to have a vector of the last one."""
    for number in range(lane.rounds):
        if number % _ROUNDS_PER_PLACE == 0:
            place: Place = lane.stores.place()
            ledger = Ledger(lane.tally)
        model = f"fake-{number}"
        child = Child(_task(lane, place, "notes", ledger, embedder=model), ledger.read)
        lane.live(child)
        child.kill()
        lane.tally.rounds += 1
        ledger.settle(place.look(ledger.removed))
        if number % _ROUNDS_PER_PLACE == _ROUNDS_PER_PLACE - 1 or number == lane.rounds - 1:
            asyncio.run(_embedded(place, model))


async def _embedded(place: Place, model: str) -> None:
    memory = await Memory.open(place.config, FakeEmbedder(model), USER)
    try:
        async with asyncio.timeout(_PATIENCE_S):
            while True:
                now = await memory.statistics()
                of_model = now.passages_embedded if now.embedding_model == model else 0
                if of_model == now.passages:
                    return
                await asyncio.sleep(0.01)
    finally:
        await memory.close()


def kill_servers(lane: Lane) -> None:
    """SIGKILL of sqld while a guest writes; it comes back on the same data."""
    for _ in range(0, lane.rounds, _ROUNDS_PER_PLACE):
        place = lane.stores.place(timeout_s=_IMPATIENT_S)
        assert isinstance(place, RemotePlace)
        server = place.server

        def fail(child: Child, server: Sqld = server) -> None:
            server.kill()
            child.listen(lane.outage())
            server.start()

        _fail_beside(lane, place, Ledger(lane.tally, failures=True), fail)


def kill_embedders(lane: Lane) -> None:
    """SIGKILL of the embedder while a guest writes; it comes back at the same socket."""
    for _ in range(0, lane.rounds, _ROUNDS_PER_PLACE):
        place = lane.stores.place()
        with embedder(Path(place.config.db_path).parent) as process:

            def fail(child: Child, process: EmbedderProcess = process) -> None:
                process.kill()
                child.listen(lane.moment())
                process.start()

            _fail_beside(lane, place, Ledger(lane.tally, survived=True), fail, process.endpoint)


def spoil_network(lane: Lane, strikes: Sequence[Strike]) -> None:
    """A network that misbehaves for a moment, or towards a few requests."""
    for _ in range(0, lane.rounds, _ROUNDS_PER_PLACE):
        networks: list[Network] = []

        def way(url: str, networks: list[Network] = networks) -> str:
            networks.append(Network(int(url.rpartition(":")[2])))
            return networks[0].url

        place = lane.stores.place(way, _IMPATIENT_S)
        network = networks[0]

        def fail(child: Child, network: Network = network) -> None:
            network.strike(lane.chance.choice(strikes), lane.chance.choice([1, 2, 7, None]))
            child.listen(lane.outage())
            network.strike(None)

        try:
            ledger = Ledger(lane.tally, failures=True, survived=True)
            _fail_beside(lane, place, ledger, fail)
        finally:
            network.stop()


def _fail_beside(
    lane: Lane, place: Place, ledger: Ledger, fail: Callable[[Child], None], embedder: str = "fake"
) -> None:
    """Faults beside guests that live on: after each they must do some more work."""
    ends = min(lane.rounds, lane.tally.rounds + _ROUNDS_PER_PLACE)
    while lane.tally.rounds < ends:
        child = Child(_task(lane, place, "both", ledger, embedder=embedder), ledger.read)
        for _ in range(min(_ROUNDS_PER_LIFE, ends - lane.tally.rounds)):
            lane.live(child)
            fail(child)
            assert child.listen(_PATIENCE_S, _is_work), "the guest did not go on"
            lane.tally.rounds += 1
        child.stop(_PATIENCE_S)
        ledger.settle(place.look(ledger.removed))


def _task(
    lane: Lane,
    place: Place,
    work: str,
    ledger: Ledger,
    *,
    embedder: str = "fake",
    source: bytes = b"",
) -> Task:
    plain = {i: note for i, note in ledger.memory.notes.items() if not note.key and not note.scope}
    return Task(
        place.config,
        work,
        lane.seed(),
        notes=[i for i, note in plain.items() if note.superseded_by is None],
        superseded=[i for i, note in plain.items() if note.superseded_by is not None],
        keys=[note.key for note in ledger.memory.notes.values() if note.key],
        sessions=list(ledger.memory.sessions),
        embedder=embedder,
        source=source,
    )


def _will_work(line: Line) -> bool:
    return "will" in line


def _is_open(line: Line) -> bool:
    return line.get("did") == "open"


def _is_work(line: Line) -> bool:
    return line.get("did") not in (None, "open")


CATALOGUE: Final = (
    Fault("guest killed: notes", "local", 9, partial(kill_guests, work="notes")),
    Fault("guest killed: sessions", "local", 6, partial(kill_guests, work="sessions")),
    Fault("guest killed: migration", "local", 4, kill_migrating),
    Fault("guest killed: re-embedding", "local", 4, kill_reembedding),
    Fault("guest killed: import", "local", 4, kill_importing),
    Fault("guest killed: notes", "sqld", 6, partial(kill_guests, work="notes")),
    Fault("guest killed: sessions", "sqld", 4, partial(kill_guests, work="sessions")),
    Fault("guest killed: migration", "sqld", 3, kill_migrating),
    Fault("guest killed: re-embedding", "sqld", 3, kill_reembedding),
    Fault("guest killed: import", "sqld", 3, kill_importing),
    Fault("embedder killed", "local", 2, kill_embedders),
    Fault("embedder killed", "sqld", 2, kill_embedders),
    Fault("sqld killed", "sqld", 6, kill_servers),
    *(
        Fault(f"network: {name}", "sqld", 2, partial(spoil_network, strikes=strikes))
        for name, strikes in {
            "cut": (Strike.DROP, Strike.CUT, Strike.SWALLOW_REQUEST),
            "slowed": (Strike.SLOW,),
            "reset in mid-answer": (Strike.RESET, Strike.LOSE, Strike.SWALLOW),
            "spoilt answers": (Strike.GARBAGE, Strike.ERROR),
            "answered twice": (Strike.TWICE, Strike.REPEAT),
        }.items()
    ),
)
