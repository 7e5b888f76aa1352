"""What of a git directory git only reads, and what it may run.

Everything is an allow-list, of names and of settings: what is not known is not allowed. A
configuration is read more strictly than git does it, so that both read the same in it.
"""

import hashlib
import re
import unicodedata
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Final

MAKES: Final = ("head", "refs", "objects", "commondir")
"""What makes a directory one of git's, whatever its name: the first, and the last or all others."""
_CONFIGS: Final = ("config", "config.worktree")
_POINTERS: Final = ("commondir", "gitdir")
READS: Final = (
    *(*_CONFIGS, *_POINTERS),
    *("objects", "refs", "logs", "hooks", "info", "modules", "worktrees"),
    *("branches", "remotes", "rebase-merge", "rebase-apply", "sequencer"),
)
"""What git reads in a directory that is one of its own in its shape alone."""
_FILES: Final = re.compile(
    r"""objects/[0-9a-f]{2}/(?:[0-9a-f]{38}|[0-9a-f]{62}|tmp_obj_\w+)
    |objects/pack/[\w.-]+|objects/info/(?:packs|commit-graph|commit-graphs/[\w.-]+)
    |objects/(?:maintenance\.lock|tmp_obj_\w+)
    |(?:refs|logs|reftable)(?:/[^/.][^/]*)+|logs/HEAD
    |(?:packed-refs|index|shallow|config|HEAD)\.lock|packed-refs|index|sharedindex\.[0-9a-f]+
    |[A-Z_]*HEAD|[A-Z_]*MSG|MERGE_MODE|MERGE_RR|AUTO_MERGE|shallow|description|gc\.(?:log|pid)
    |BISECT_(?:LOG|START|EXPECTED_REV|ANCESTORS_OK|FIRST_PARENT)
    |rebase-merge/(?:onto|orig-head|head-name|msgnum|end|message(?:-squash|-fixup)?|patch|stopped-sha
    |interactive|amend|autostash|quiet|verbose|signoff|rewritten-(?:list|pending)|current-fixups
    |(?:no-)?reschedule-failed-exec|(?:keep|drop)_redundant_commits|update-refs|squash-onto)
    |info/(?:exclude|refs|sparse-checkout)|lfs/objects/[0-9a-f]{2}/[0-9a-f]{2}/[0-9a-f]{64}""",
    re.VERBOSE,
)
"""The files that may change: git runs nothing that they say."""
_DIRECTORIES: Final = re.compile(
    r"""objects(?:/(?:[0-9a-f]{2}|pack|info(?:/commit-graphs)?))?
    |(?:refs|logs|reftable|modules)(?:/[^/.][^/]*)*|worktrees(?:/[^/.][^/]*)?|hooks|info|branches
    |rebase-merge|lfs(?:/(?:tmp|objects(?:/[0-9a-f]{2}){0,2}))?""",
    re.VERBOSE,
)
_TODO: Final = re.compile(
    r"""([ \t]*(?:\#.*|(?:p|pick|r|reword|e|edit|s|squash|f|fixup|d|drop|l|label|t|reset|m|merge
    |b|break|u|update-ref|noop)(?:[ \t].*)?)?\n)*""",
    re.VERBOSE,
)
_TEXTS: Final = {
    **dict.fromkeys((f"rebase-merge/{each}" for each in ("git-rebase-todo", "done")), _TODO),
    "rebase-merge/git-rebase-todo.backup": _TODO,
    "rebase-merge/author-script": re.compile(
        r"(GIT_AUTHOR_(NAME|EMAIL|DATE)='([^'\n]|'\\[!']')*'\n)*"
    ),
    "rebase-merge/strategy": re.compile(r"(?:(?:ort|recursive|resolve|octopus|ours|subtree)\n)?"),
    "BISECT_NAMES": re.compile(r"( '[^'\n]*')*\n?"),
    "BISECT_TERMS": re.compile(r"([\w-]+\n){2}"),
}
"""What these files may say. Older versions of git gave some of them to a shell."""
_SAMPLES: Final = """
    0223497a0b8b033aa58a3a52 1f74d5e9292979b573ebd597 e0549964e93897b519bd8e33
    81765af2daef323061dcbc5e e15c5b469ea3e0a695bea6f2 f9af7d95eb1231ecf2eba977
    d3825a70337940ebbd0a5c07 ecce9c7e04d3f5dd9d8ada81 4febce867790052338076f4e
    a4c3d2b9c7bb3fd8d1441c31 e9ddcaa4189fddd25ed97fc8 a53d0741798b287c6dd7afa6
    8d5f2fa83e103cf08b57eaa6"""
_TEMPLATES: Final = Path("/usr/share/git-core/templates/hooks")

_HEADER: Final = re.compile(r'\[([A-Za-z0-9-]+)(?:[ \t]+"((?:[^"\\]|\\["\\])*)")?\]')
_SETTING: Final = re.compile(
    r'([A-Za-z][A-Za-z0-9-]*)(?:[ \t]*=[ \t]*("(?:[^"\\]|\\["\\])*"|[^"\\;#]*))?'
)
_CONTROLS: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\ufeff]")
_HARMLESS: Final = """
    core.repositoryformatversion core.filemode core.bare core.logallrefupdates core.ignorecase
    core.symlinks core.precomposeunicode extensions.objectformat extensions.worktreeconfig
    user.name user.email remote.*.fetch remote.*.tagopt branch.*.merge branch.*.rebase
    branch.*.description submodule.active submodule.*.active core.autocrlf core.eol core.safecrlf
    core.quotepath core.abbrev pull.rebase pull.ff push.default push.autosetupremote push.followtags
    merge.ff merge.conflictstyle fetch.prune init.defaultbranch rebase.autosquash rebase.autostash
    color.ui color.branch color.diff color.status color.interactive log.date log.decorate
    log.abbrevcommit log.follow gc.auto feature.manyfiles"""
"""They run nothing and name no file: so not `log.showsignature` (gpg), `i18n.*` (a module of the C
library) and `rebase.instructionformat` (lines of the todo)."""
_ADDRESSES: Final = """
    remote.*.url remote.*.pushurl submodule.*.url branch.*.remote branch.*.pushremote"""
_NETWORK: Final = re.compile(
    r"(?:https?|ssh|git)://(?:[^-/@\s][^/@\s]*@)?[^-/@\s]\S*|(?:\w[\w.-]*@)?\w[\w.-]*:(?!:|//|-)\S+"
)


def plain(name: str) -> str:
    """How a file system that folds names, and git, may read `name`: `.G\u200cIT`, `git~1`, `.git `
    and `.git::$INDEX_ALLOCATION` are `.git`."""
    if not name.isascii():
        seen = unicodedata.normalize("NFKC", name)
        name = "".join(each for each in seen if unicodedata.category(each) not in ("Cf", "Mn"))
    name = name.casefold().partition(":")[0].rstrip(" .")
    return ".git" if name == "git~1" else name


@cache
def samples() -> frozenset[str]:
    """The digests of git's own samples of hooks: of a known version, and of this machine's."""
    digests = (hashlib.sha256(each.read_bytes()) for each in _TEMPLATES.glob("*.sample"))
    return frozenset((*_SAMPLES.split(), *(each.hexdigest()[:24] for each in digests)))


def role(kind: str, within: str) -> str:
    """What the entry at `within` in a git directory is watched as; empty: it may change."""
    if kind == "directory":
        return "" if _DIRECTORIES.fullmatch(within) else "runs"
    if kind != "file":
        return "runs"
    if within.startswith("hooks/") and within.endswith(".sample"):
        return "sample"
    roles = dict.fromkeys(_CONFIGS, "config") | dict.fromkeys(_POINTERS, "pointer")
    roles |= dict.fromkeys(_TEXTS, "text")
    return roles.get(within, "" if _FILES.fullmatch(within) else "runs")


def runs_nothing(within: str, data: bytes) -> bool:
    """Whether git runs nothing that a file of a rebase or a bisection says."""
    text = data.decode(errors="replace")
    return _TEXTS[within].fullmatch(text if text.endswith("\n") else f"{text}\n") is not None


def may_run(
    data: bytes, is_inside: Callable[[str], str | None]
) -> tuple[list[tuple[str, ...]], bytes]:
    """The settings of a configuration that may run something, in their order, and it without them.
    `is_inside` says where a path in it leads; None: out of the project.

    Raises `ValueError` if it is not as git itself would write it.
    """
    text = data.decode()
    if _CONTROLS.search(text):
        raise ValueError("a control character")
    found: list[tuple[str, ...]] = []
    section, below, kept = "", None, list[str]()
    for line in (each.strip(" \t") for each in text.split("\n")):
        if not line or line[0] in "#;":
            continue
        if header := _HEADER.fullmatch(line):
            section, below = header[1].lower(), header[2]
            kept.append(line)
        elif section and (setting := _SETTING.fullmatch(line)):
            key, value = setting[1].lower(), (setting[2] or "").strip(" \t").strip('"')
            name = f"{section}.{key}" if below is None else f"{section}.*.{key}"
            if (
                name in _HARMLESS.split()
                or (name == "core.worktree" and is_inside(value) is not None)
                or (name in _ADDRESSES.split() and _runs_nothing(value, is_inside))
            ):
                kept.append(f"\t{line}")
            else:
                found.append((name, below or "", setting[2] or ""))
        else:
            raise ValueError("a line that git would not write so")
    return found, "".join(f"{each}\n" for each in kept).encode()


def _runs_nothing(address: str, is_inside: Callable[[str], str | None]) -> bool:
    """Whether git asks only a server at `address`, or a repository whose hooks are watched, too."""
    if _NETWORK.fullmatch(address):
        return True
    path = address.removeprefix("file://")
    return not re.match(r"-|.*(:|\.\.)", path) and is_inside(path) is not None
