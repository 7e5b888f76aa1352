"""The engine's socket behind another one, which can go away and come back. Containers live on."""

import asyncio
import contextlib
import threading
from pathlib import Path
from types import TracebackType
from typing import Self

_PIECE_BYTES = 64 * 1024


class EngineProxy:
    """Passes on what is sent to the socket `place` while it is there. A context manager."""

    def __init__(self, engine: Path, place: Path) -> None:
        self.place = place
        self._engine = engine
        self._open: set[asyncio.StreamWriter] = set()
        self._listener: asyncio.Server | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self.come()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        self.leave()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def come(self) -> None:
        """Serve the socket."""
        asyncio.run_coroutine_threadsafe(self._come(), self._loop).result()

    def leave(self) -> None:
        """Serve it no more, and break every connection."""
        asyncio.run_coroutine_threadsafe(self._leave(), self._loop).result()

    async def _come(self) -> None:
        self._listener = await asyncio.start_unix_server(self._pass_on, self.place)

    async def _leave(self) -> None:
        if self._listener is not None:
            self._listener.close()
            self.place.unlink(missing_ok=True)
        for writer in self._open:
            writer.transport.abort()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_unix_connection(self._engine)
        self._open |= {writer, back}
        with contextlib.suppress(OSError):
            await asyncio.gather(_copy(reader, back), _copy(there, writer))
        for each in (writer, back):
            each.close()
            self._open.discard(each)


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while piece := await reader.read(_PIECE_BYTES):
        writer.write(piece)
        await writer.drain()
    writer.write_eof()
