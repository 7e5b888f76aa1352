"""A package that pip installs, and the index that offers it."""

import base64
import hashlib
import io
import zipfile
from dataclasses import dataclass
from typing import Final, Self

PYPI: Final = "pypi.org"
FILES: Final = "files.pythonhosted.org"


@dataclass(frozen=True)
class Package:
    """A wheel with one module that says who it is."""

    name: str
    version: str
    wheel: bytes

    @classmethod
    def build(cls, name: str, version: str) -> Self:
        module = f"WHO = {name + ' of this internet'!r}\n__version__ = {version!r}\n"
        about = f"{name}-{version}.dist-info"
        files = {
            f"{name}.py": module,
            f"{about}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
            f"{about}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\n"
            "Tag: py3-none-any\n",
        }
        record = "".join(f"{path},{_digest(text)},{len(text)}\n" for path, text in files.items())
        files[f"{about}/RECORD"] = f"{record}{about}/RECORD,,\n"
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w") as archive:
            for path, text in files.items():
                archive.writestr(path, text)
        return cls(name, version, packed.getvalue())

    @property
    def file(self) -> str:
        return f"{self.name}-{self.version}-py3-none-any.whl"

    def page(self) -> str:
        """Of the index, at /simple/NAME/."""
        url = f"https://{FILES}/packages/{self.file}"
        digest = hashlib.sha256(self.wheel).hexdigest()
        return f'<!DOCTYPE html><a href="{url}#sha256={digest}">{self.file}</a>'


def _digest(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"sha256={base64.urlsafe_b64encode(digest).rstrip(b'=').decode()}"
