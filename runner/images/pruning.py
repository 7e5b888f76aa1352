"""Images of other versions than the installed one, and their removal."""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version as installed_version

import docker
import docker.errors
from wire.errors import Code

from runner.errors import TierError
from runner.images.naming import ImageRole


@dataclass(frozen=True)
class OldImage:
    """An image of another version. `size` in bytes with all its layers, which others may share;
    `containers` are the names of those that were made from it."""

    name: str
    version: str
    size: int
    containers: tuple[str, ...]


def old_images(engine: docker.APIClient, images: str) -> list[OldImage]:
    """The images of other versions under the prefix `images`, by name."""
    ours = {f"{images}-{role}" for role in ImageRole}
    made: dict[str, list[str]] = {}
    for container in engine.containers(all=True):
        made.setdefault(container["ImageID"], []).append(container["Names"][0].lstrip("/"))
    found = []
    for image in engine.images():
        for name in image["RepoTags"] or ():
            repository, _, tag = name.rpartition(":")
            if repository in ours and tag != installed_version("oxydra"):
                containers = tuple(sorted(made.get(image["Id"], ())))
                found.append(OldImage(name, tag, image["Size"], containers))
    return sorted(found, key=lambda each: each.name)


def remove_images(engine: docker.APIClient, old: Sequence[OldImage]) -> None:
    """Remove images that no container was made from. Raises `TierError` (CONFLICT) if the engine
    refuses one; those before it are gone."""
    for each in old:
        try:
            engine.remove_image(each.name)
        except docker.errors.ImageNotFound:
            continue
        except docker.errors.APIError as error:
            raise TierError(
                Code.CONFLICT,
                f"the image {each.name} is not removed",
                details=str(error.explanation or error),
                resolution=f"docker image rm {each.name}",
            ) from None
