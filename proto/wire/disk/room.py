"""How much room a disk has, what is kept free on it for the memory, and what takes the most."""

import os
import stat
from typing import Final

from wire.disk.walk import walk

RESERVE_MAX_BYTES: Final = 16 * 1024 * 1024
_RESERVE_SHARE: Final = 20
"""The reserve is at most this fraction of a disk (1/20), so that small disks stay usable."""
_INODES_SHARE: Final = 100
_LOOKED_AT_MAX: Final = 100_000
_MIB: Final = 1024 * 1024


def free_bytes(disk: os.statvfs_result) -> int:
    return disk.f_bavail * disk.f_frsize


def reserve_bytes(disk: os.statvfs_result) -> int:
    """How much is kept for the memory on a disk: as its reserve, and free beside it."""
    return min(RESERVE_MAX_BYTES, disk.f_blocks * disk.f_frsize // _RESERVE_SHARE)


def shortage(disk: os.statvfs_result, size: int) -> str:
    """What would be missing on a disk after `size` more bytes in one more file; "" if nothing."""
    kept = reserve_bytes(disk)
    if (free := free_bytes(disk)) < kept + size:
        return f"the disk has {free / _MIB:.1f} MiB left, and {kept / _MIB:.1f} MiB are kept free"
    if disk.f_favail < disk.f_files // _INODES_SHARE:
        kept = disk.f_files // _INODES_SHARE
        return f"the disk has room for {disk.f_favail} files, and {kept} are kept free"
    return ""


def largest_file(directory: int) -> tuple[str, int]:
    """The path below an open directory and the size of the file that takes the most room, of the
    first 100,000 entries; ("", 0) if there is none."""
    largest, size = "", 0
    for count, entry in enumerate(walk(directory)):
        if count >= _LOOKED_AT_MAX:
            break
        try:
            found = entry.found.stat(follow_symlinks=False)
        except OSError:
            continue
        taken = found.st_blocks * 512
        if stat.S_ISREG(found.st_mode) and taken > size:
            largest, size = entry.path, taken
    return largest, size
