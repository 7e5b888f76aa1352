"""Images as files, for hosts without a registry; and which images there are."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import docker
import docker.errors
from wire.disk import whole_file
from wire.errors import Code

from runner.errors import TierError
from runner.images.naming import USUAL_ROLES, ImageRole, image_name

_BLOCK: Final = 1 << 20


@dataclass(frozen=True)
class Image:
    """An image name; `size` in bytes with all its layers, None if the engine does not have it."""

    role: ImageRole
    name: str
    image_id: str | None = None
    size: int = 0


def list_images(engine: docker.APIClient, images: str) -> list[Image]:
    """The usual images of this version, also missing ones, and others that are there."""
    found = [look_up(engine, images, role) for role in ImageRole]
    return [each for each in found if each.image_id or each.role in USUAL_ROLES]


def look_up(engine: docker.APIClient, images: str, role: ImageRole) -> Image:
    name = image_name(images, role)
    seen = inspected(engine, name)
    return Image(role, name, seen["Id"], seen["Size"]) if seen else Image(role, name)


def inspected(engine: docker.APIClient, name: str) -> dict[str, Any] | None:
    """What the engine says about an image; None if it does not have it."""
    try:
        return dict(engine.inspect_image(name))  # type: ignore[no-untyped-call]
    except docker.errors.ImageNotFound:
        return None


def save_images(
    engine: docker.APIClient, images: str, roles: Sequence[ImageRole], file: Path
) -> None:
    """Write the images of `roles` into one tar file, which `docker load` reads too.

    An existing file is replaced only when the new one is complete; nobody else can read or change
    it. Raises `TierError` (FAILED_PRECONDITION) if an image is missing.
    """
    wanted = [look_up(engine, images, role) for role in roles]
    if missing := [each for each in wanted if each.image_id is None]:
        raise TierError(
            Code.FAILED_PRECONDITION,
            f"there is no image {missing[0].name}",
            resolution="runner images build",
        )
    with whole_file(file) as out:
        for block in _exported(engine, [each.name for each in wanted]):
            out.write(block)


def _exported(engine: Any, names: Sequence[str]) -> Iterator[bytes]:
    """All images in one request, so that shared layers come once. The SDK has no call for it."""
    response = engine._get(
        engine._url("/images/get"), params={"names": names}, stream=True, timeout=None
    )
    engine._raise_for_status(response)
    yield from response.iter_content(_BLOCK)


def load_images(engine: docker.APIClient, file: Path) -> list[str]:
    """Load the images of a tar file and return their names.

    Raises `TierError` (INVALID_ARGUMENT) if the engine finds none in it.
    """
    with file.open("rb") as packed:
        answer = engine.load_image(packed)  # type: ignore[no-untyped-call]
        said = [str(message.get("stream") or message.get("error") or "") for message in answer]
    names = [line.split(": ", 1)[1].strip() for line in said if line.startswith("Loaded image")]
    if not names:
        raise TierError(
            Code.INVALID_ARGUMENT,
            f"no image in {file}",
            details=" ".join(said).strip(),
            resolution="make the file with: runner images save FILE.tar",
        )
    return names
