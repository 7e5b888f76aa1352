"""The catalogue of tools and their families; and the virtual paths, the only ones that a model, a
tool result or a command ever sees."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

FAMILIES: Final[Mapping[str, tuple[str, ...]]] = {
    "memory": (
        "memory_search",
        "memory_save",
        "memory_update",
        "memory_delete",
        "memory_context",
    ),
    "files": (
        "file_read",
        "file_list",
        "file_search",
        "file_write",
        "file_edit",
        "file_delete",
    ),
    "shell": ("shell_exec", "shell_output", "shell_stop"),
    "typed_memory": ("remember", "recall", "forget"),
    "reminders": ("reminder_set", "reminder_list"),
    "working_memory": (
        "search_memory",
        "write_memory",
        "write_session_handoff",
        "scratch_note",
    ),
    "web": ("web_fetch", "web_search"),
    "delegation": ("delegate",),
    "schedules": (
        "schedule_create",
        "schedule_list",
        "schedule_update",
        "schedule_delete",
        "schedule_runs",
    ),
    "egress": ("egress_propose",),
}

DELEGATE: Final = "delegate"

READER: Final = "oxydra-reader"
"""What the shell guest is asked to run to read a document; its daemon knows where that is."""
PAGE_READER: Final = "oxydra-page-reader"
"""The same for a page of the web, or a search."""

CORE: Final = frozenset((*FAMILIES["memory"], *FAMILIES["files"], "shell_exec")) - {
    "memory_context"
}
"""The tools that a model is offered in every request; a large one finds the others when it needs
them."""

TOOLS: Final = tuple(tool for tools in FAMILIES.values() for tool in tools)

MEMORY_TOOLS: Final = frozenset(
    tool
    for family in ("memory", "typed_memory", "reminders", "working_memory")
    for tool in FAMILIES[family]
)

NAMES: Final = frozenset(FAMILIES) | frozenset(TOOLS)
"""The names that a configuration may use; a family stands for all of its tools."""


def offered(enabled: Collection[str], disabled: Collection[str]) -> frozenset[str]:
    """The tools that are not disabled. A tool's own name overrides its family's, and `disabled`
    overrides `enabled` at the same level."""

    def is_on(tool: str, family: str) -> bool:
        for name in (tool, family):
            if name in disabled or name in enabled:
                return name not in disabled
        return True

    pairs = ((tool, family) for family, tools in FAMILIES.items() for tool in tools)
    return frozenset(tool for tool, family in pairs if is_on(tool, family))


@dataclass(frozen=True)
class VirtualRoot:
    """One directory that file tools may enter, under the name the model uses. Commands see it, too,
    if it is `in_shell`. Notes kept for it have the `tag`; with `keeps_notes`, all new ones."""

    name: str
    writable: bool
    in_shell: bool = True
    tag: str = ""
    keeps_notes: bool = False

    @property
    def path(self) -> str:
        return f"/{self.name}"

    @property
    def is_project(self) -> bool:
        """Whether it is a directory of the operator's, at /projects/NAME."""
        return "/" in self.name


PROJECTS: Final = "projects"
"""The directory that has the project directories, each under its name."""
PROJECT_TAG: Final = "project"
"""The tag that keeps a note for the session's project, and begins that of a certain one."""
SHARED: Final = VirtualRoot("shared", writable=True)
"""What a person, the agent and commands exchange files through."""

VIRTUAL_ROOTS: Final = (
    SHARED,
    VirtualRoot("tmp", writable=True),
    VirtualRoot("vault", writable=False, in_shell=False),
)
"""Those that are always there."""
SKILLS: Final = VirtualRoot("skills", writable=False)
"""The skills, where there are any."""

SESSION_META: Final = "oxydra/session"
"""Where a call of an MCP server's tool says in which conversation it is made."""
