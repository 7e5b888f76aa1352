"""How much memory a guest has, as the host sees its processes."""

import contextlib

import psutil


def resident_bytes(pid: int) -> int:
    """Of the process and all below it; 0 for one that is gone. Blocks for milliseconds."""
    found = 0
    with contextlib.suppress(psutil.Error):
        process = psutil.Process(pid)
        for each in [process, *process.children(recursive=True)]:
            with contextlib.suppress(psutil.Error):
                found += each.memory_info().rss
    return found
