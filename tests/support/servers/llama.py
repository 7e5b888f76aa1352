"""Real language models, served by llama.cpp: what `tools/get_models.sh` has downloaded."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

MODELS: Final = Path(__file__).parents[3] / ".venv" / "models"
SMALLEST: Final = MODELS / "smallest.gguf"
LARGER: Final = MODELS / "larger.gguf"
TEMPLATES: Final = MODELS / "templates"
CHATML: Final = Path(__file__).with_name("chatml_tools.jinja")
"""SmolLM2's own template shows the model no tools; this one does."""

_PYTHON: Final = MODELS / "server" / "bin" / "python"
_PROGRAM: Final = Path(__file__).with_name("llama_program.py")


async def _start(*arguments: object) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        str(_PYTHON),
        "-I",
        str(_PROGRAM),
        *map(str, arguments),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )


@asynccontextmanager
async def llama(model: Path, window: int, template: Path = CHATML) -> AsyncIterator[str]:
    """A server of this model; its base URL."""
    process = await _start("serve", model, window, template)
    try:
        assert process.stdout is not None
        address = (await process.stdout.readline()).decode().strip()
        assert address, "llama.cpp's server did not start"
        yield f"{address}/v1"
    finally:
        process.kill()
        await process.wait()


async def refusals(
    requests: Mapping[str, Any], templates: Sequence[Path]
) -> dict[str, dict[str, str]]:
    """What llama.cpp refuses to render: by template, by request, its words."""
    process = await _start("render", SMALLEST, *templates)
    answer, _ = await process.communicate(json.dumps(requests).encode())
    found: dict[str, dict[str, str]] = json.loads(answer)
    return found
