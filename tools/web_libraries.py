#!/usr/bin/env python3
"""Bring the console's libraries from npm into web/vendor, as files that a browser loads.

    tools/web_libraries.py    does nothing where they are there already, unchanged

Their exact versions and the SHA-512 of their archives stand in web/package-lock.json. Needs Python
alone, and the network once; `NPM_CONFIG_REGISTRY` names another registry.
"""

import base64
import hashlib
import io
import json
import os
import re
import sys
import tarfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Final

WEB: Final = Path(__file__).resolve().parent.parent / "web"
REGISTRY: Final = "https://registry.npmjs.org"
TRIES: Final = 4

FILES: Final = {
    "preact": {
        "dist/preact.mjs": "preact.js",
        "hooks/dist/hooks.mjs": "preact-hooks.js",
        "LICENSE": "preact.LICENSE",
    },
    "htm": {"dist/htm.mjs": "htm.js", "LICENSE": "htm.LICENSE"},
    "markdown-it": {
        "dist/browser/markdown-it.esm.min.mjs": "markdown-it.js",
        "LICENSE": "markdown-it.LICENSE",
    },
    "dompurify": {"dist/purify.es.mjs": "dompurify.js", "LICENSE": "dompurify.LICENSE"},
    "temml": {"dist/temml.mjs": "temml.js", "LICENSE": "temml.LICENSE"},
    "@highlightjs/cdn-assets": {
        "es/highlight.min.js": "highlight.js",
        "LICENSE": "highlight.LICENSE",
    },
}
"""Of each package what is taken, and its name in web/vendor."""

TYPES: Final = {
    "preact.d.ts": 'export * from "preact";',
    "preact-hooks.d.ts": 'export * from "preact/hooks";',
    "htm.d.ts": 'export { default } from "htm";',
    "markdown-it.d.ts": 'export { default } from "markdown-it";',
    "dompurify.d.ts": 'export { default } from "dompurify";',
    "temml.d.ts": "declare const temml: any;\nexport default temml;",
    "highlight.d.ts": "declare const hljs: any;\nexport default hljs;",
}
"""Where tsc finds the types of a file: in the package, once `npm ci` has installed it. Two
libraries come without."""

IMPORTED: Final = {b'"preact"': b'"./preact.js"'}
"""Modules that name each other as npm does, and where a browser finds them."""

_SOURCE_MAP: Final = re.compile(rb"\n?//# sourceMappingURL=\S+\s*$")


class UnavailableError(Exception):
    """An archive cannot be had, or is not the one that was pinned."""


def bring(web: Path = WEB) -> bool:
    """Make `web`/vendor hold what is pinned. Returns whether there was anything to do.

    Raises `UnavailableError`; the folder is as it was then.
    """
    vendor = web / "vendor"
    lock = json.loads((web / "package-lock.json").read_bytes())
    pinned = {name: lock["packages"][f"node_modules/{name}"] for name in FILES}
    stamp = hashlib.sha256(
        json.dumps(pinned, sort_keys=True).encode() + Path(__file__).read_bytes()
    ).hexdigest()
    pinned_file = vendor / ".pinned"
    if pinned_file.is_file() and pinned_file.read_text() == _sealed(vendor, stamp):
        return False
    found = {
        name: content
        for package, each in pinned.items()
        for name, content in _files(package, each["version"], each["integrity"])
    }
    found |= {name: f"{line}\n".encode() for name, line in TYPES.items()}
    vendor.mkdir(exist_ok=True)
    for name, content in found.items():
        (vendor / name).write_bytes(content)
    pinned_file.write_text(_sealed(vendor, stamp))
    return True


def _names() -> Iterator[str]:
    for files in FILES.values():
        yield from files.values()


def _sealed(vendor: Path, stamp: str) -> str:
    """Of what was pinned and of what the files hold, so that a changed file is fetched again."""
    seal = hashlib.sha256(stamp.encode())
    for path in (vendor / name for name in (*_names(), *TYPES)):
        seal.update(hashlib.sha256(path.read_bytes() if path.is_file() else b"").digest())
    return seal.hexdigest()


def _files(package: str, version: str, integrity: str) -> Iterator[tuple[str, bytes]]:
    registry = os.environ.get("NPM_CONFIG_REGISTRY", REGISTRY).rstrip("/")
    url = f"{registry}/{package}/-/{package.rpartition('/')[2]}-{version}.tgz"
    content = fetched(url)
    digest = "sha512-" + base64.b64encode(hashlib.sha512(content).digest()).decode()
    if digest != integrity:
        raise UnavailableError(
            f"{url} is not the archive that web/package-lock.json names\n"
            f"wanted {integrity}\nfound  {digest}\n"
            "If a proxy changes downloads, set NPM_CONFIG_REGISTRY to one that does not."
        )
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        for member, name in FILES[package].items():
            file = archive.extractfile(f"package/{member}")
            if file is None:
                raise UnavailableError(f"{url} has no file {member}")
            text = _SOURCE_MAP.sub(b"\n", file.read())
            for imported, path in IMPORTED.items():
                text = text.replace(b"from" + imported, b"from" + path)
            yield name, text


def fetched(url: str) -> bytes:
    for attempt in range(TRIES):
        try:
            with urllib.request.urlopen(url, timeout=60) as reply:
                return bytes(reply.read())
        except (urllib.error.URLError, OSError) as error:
            failure = error
            if isinstance(error, urllib.error.HTTPError) and error.code < 500:
                break
        time.sleep(2**attempt)
    raise UnavailableError(
        f"the console's libraries cannot be had: {url}: {failure}\n"
        "They are needed once; connect to the network and run tools/web_libraries.py, or name "
        "another npm registry in NPM_CONFIG_REGISTRY."
    )


if __name__ == "__main__":
    try:
        bring()
    except UnavailableError as problem:
        sys.exit(str(problem))
