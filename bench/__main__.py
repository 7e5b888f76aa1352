"""`make bench [ARGS=--full]`: every figure of the documentation, in one run."""

import argparse
import asyncio
import platform

import psutil

from bench import (
    changed_files,
    consoles,
    egress,
    full_machine,
    importing,
    many_users,
    memory,
    processes,
    prompt_cache,
    remote,
    schedules,
    shell,
    sizes,
    tiers,
)


async def main() -> None:
    parser = argparse.ArgumentParser(prog="make bench")
    parser.add_argument("--full", action="store_true", help="larger sizes and more rounds")
    full: bool = parser.parse_args().full
    print(
        f"{platform.system()} {platform.release()}, {psutil.cpu_count()} cores, "
        f"{psutil.virtual_memory().total / 2**30:.0f} GiB, Python {platform.python_version()}"
    )
    parts = (
        memory,
        importing,
        sizes,
        remote,
        many_users,
        prompt_cache,
        consoles,
        changed_files,
        schedules,
        processes,
        shell,
        egress,
        tiers,
        full_machine,
    )
    for part in parts:
        print()
        print("\n".join(await part.run(full)), flush=True)


if __name__ == "__main__":
    asyncio.run(main())
