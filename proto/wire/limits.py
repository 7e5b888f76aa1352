"""Bounds that both ends of a connection must agree on, in one place."""

from typing import Final

ENVELOPE_VERSION: Final = 3
ENVELOPE_MAX_BYTES: Final = 1024 * 1024

UNIX_SOCKET_PATH_MAX_BYTES: Final = 107
"""sun_path holds 108 bytes on Linux, the last one a NUL."""

GRPC_MESSAGE_MAX_BYTES: Final = 16 * 1024 * 1024

USER_ID_PATTERN: Final = r"[a-z0-9][a-z0-9_-]{0,31}"
ID_PATTERN: Final = r"[A-Za-z0-9._-]{1,64}"
"""Of sessions, turns, notes, approvals and channels."""

NOTE_MAX_CHARS: Final = 16_000
QUERY_MAX_CHARS: Final = 2_000
PROPOSED_HOSTS_MAX: Final = 8
ALWAYS: Final = "what this opens, and always in all others: the settings of this host will say so"
"""The offer to a person that is the operator's alone."""
CURSOR_MAX_CHARS: Final = 1_000
TURN_TEXT_MAX_CHARS: Final = 100_000
FILE_MAX_BYTES: Final = 1024 * 1024 * 1024
TOP_K_MAX: Final = 20
TAGS_MAX: Final = 16
TAG_MAX_CHARS: Final = 64
TOOL_OUTPUT_MAX_BYTES: Final = 16 * 1024
COMMAND_MAX_CHARS: Final = 32_000
COMMAND_TIMEOUT_S: Final[float] = 60
GIT_IDENTITY: Final = r"([^<>\x00-\x20][^<>\x00-\x1f]{0,99} <[^<>\s@]+@[^<>\s@]+>)?"
"""Who commits, as git writes it; or nobody."""
COMMAND_TIMEOUT_MAX_S: Final[float] = 3600
TOOL_GUESTS_MAX: Final = 8
"""Of one user at once."""
BACKGROUND_S: Final[float] = 86_400
BACKGROUND_MAX_S: Final[float] = 7 * 86_400

SEQUENCE_MAX: Final = 2**53 - 1
"""The largest integer that the local libSQL binding stores without loss: it binds Python
integers of 2**31 and above as 64-bit floats."""

EMBED_BATCH_MAX_TEXTS: Final = 256
EMBED_TEXT_MAX_CHARS: Final = 8_000

EXPORT_PART_BYTES: Final = 1024 * 1024
EXPORT_LINE_MAX_BYTES: Final = 8 * 1024 * 1024
"""A message of an export or import holds whole lines: up to `EXPORT_PART_BYTES` of them, or one
longer line of at most this size."""

SECRET_MIN_CHARS: Final = 12
"""Shorter secrets are not looked for in texts: they would be found by chance."""

TOKEN_METADATA_KEY: Final = "oxydra-token"  # noqa: S105
ERROR_METADATA_KEY: Final = "oxydra-error-bin"

RESERVE_SUFFIX: Final = ".reserve"
"""Of the file beside a database that keeps room on the disk for it."""
