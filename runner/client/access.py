"""Access files: what a person needs to reach an agent of another account or machine.

A file holds the address, the certificate that the server there must prove to have, and the token.
`runner access create --access-file` writes it; its owner keeps it private.
"""

import os
import stat
from pathlib import Path
from typing import Annotated, Final, Self

from pydantic import AfterValidator, AwareDatetime, BaseModel, ConfigDict, Field, ValidationError
from wire.errors import Code, WireError
from wire.zones import own_name

from runner.client.calls import CallChannel
from runner.client.gateway import GatewayClient, GatewayLost
from runner.errors import ConfigError, file_errors

ADDRESS: Final = r"^(unix:/\S+|(\[[0-9A-Fa-f:]+\]|[A-Za-z0-9.-]+):[0-9]{1,5})$"


def _with_port(address: str) -> str:
    if not address.startswith("unix:") and int(address.rpartition(":")[2]) > 65_535:
        raise ValueError("ports end at 65535")
    return address


class AccessFile(BaseModel):
    """The content of an access file, which is JSON.

    Attributes:
        address: `unix:/absolute/path` or `host:port`.
        server_name: The name in the server's certificate; empty for that of the address.
        certificate: The authority that has signed it, in PEM; empty for those that the world
            trusts.
        token: The access token.
        user_id: Whose agent it opens.
        name: The token's name.
        expires_at: When it ends.
    """

    model_config = ConfigDict(frozen=True)

    address: Annotated[str, Field(pattern=ADDRESS), AfterValidator(_with_port)]
    server_name: Annotated[str, Field(pattern=r"^[A-Za-z0-9.-]*$")] = ""
    certificate: str = ""
    token: Annotated[str, Field(pattern=r"^[!-~]+$", repr=False)]
    user_id: str
    name: str
    expires_at: AwareDatetime

    @classmethod
    def read(cls, path: Path) -> Self:
        """Raises `ConfigError` if it cannot be read, is damaged, or others could read it."""
        fix = "give --connect the file that the person who runs the agent has made"
        reading = file_errors(f"cannot read the access file {path}", fix, kind=ConfigError)
        with reading, path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            text = file.read()
        if mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise ConfigError(
                Code.FAILED_PRECONDITION,
                f"others can read the access file {path}",
                details=f"its mode is {stat.S_IMODE(mode):04o}, and who has the token is you",
                resolution=f"chmod 600 {path}; if somebody may have read it, ask for another",
            )
        try:
            return cls.model_validate_json(text)
        except ValidationError as error:
            if text.startswith(b"oxa_"):
                raise ConfigError(
                    Code.INVALID_ARGUMENT,
                    f"{path} holds an access token alone",
                    details="for --connect the address of the server belongs to it",
                    resolution="ask the person who runs the agent for what this writes: "
                    "runner access create NAME --access-file FILE",
                ) from None
            where = ", ".join(".".join(map(str, each["loc"])) or "JSON" for each in error.errors())
            raise ConfigError(
                Code.INVALID_ARGUMENT,
                f"{path} is not an access file",
                details=f"not as expected: {where}",
                resolution="ask the person who runs the agent for another one",
            ) from None

    def open_channel(self) -> CallChannel:
        """Calls of the server that the file names, and of no other; every one carries the token.
        The caller closes it. Raises `WireError` for a certificate that is none."""
        from runner.client.http import over_http  # imports httpx

        return over_http(self.address, self.server_name, self.certificate, self.token, self.user_id)

    async def connect(self, *, channel_name: str) -> GatewayClient:
        """Connect and say hello.

        Raises `WireError`: UNAVAILABLE where waiting can help, UNAUTHENTICATED for a token that is
        not good any more, FAILED_PRECONDITION for a server that is another one.
        """
        try:
            agent = await GatewayClient.over(self.open_channel(), channel_name=channel_name)
            agent.time_zone = own_name(os.environ)
            return agent
        except GatewayLost as error:
            raise WireError(
                Code.UNAVAILABLE,
                f"nobody answers at {self.address}",
                details=error.details,
                resolution="ask the person who runs the agent whether people are let in there",
            ) from None
