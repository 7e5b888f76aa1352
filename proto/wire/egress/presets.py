"""Presets: what one word opens."""

from collections.abc import Mapping
from typing import Final

PRESETS: Final[Mapping[str, tuple[str, ...]]] = {
    "pypi": ("https://pypi.org", "https://files.pythonhosted.org"),
    "npm": ("https://registry.npmjs.org",),
    "debian": (
        "deb.debian.org",
        "security.debian.org",
        "https://snapshot.debian.org",
    ),
    "github": (
        "https://github.com",
        "https://api.github.com",
        "https://codeload.github.com",
        "https://raw.githubusercontent.com",
        "https://objects.githubusercontent.com",
        "https://release-assets.githubusercontent.com",
    ),
    "huggingface": (
        "https://huggingface.co",
        "https://cdn-lfs.huggingface.co",
        "https://cas-bridge.xethub.hf.co",
    ),
}
"""The rules of each preset by its name."""
