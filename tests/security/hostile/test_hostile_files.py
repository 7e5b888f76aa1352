"""Reading what is not in the shell's column of the mount table, by every name there is."""

import pytest

from tests.support.attempts import rows
from tests.support.boundary.two_hosts import Attempt, TwoHosts, bash, judged, python

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.stopped_in("process")]

CONCEALED = "processes of the host are not seen, and those of the daemon are concealed"

ATTEMPTS = [
    Attempt(
        "private directories by their virtual paths",
        bash("""
            for p in /.oxydra /vault /.oxydra/own.txt /vault/deed.txt /shared/../.oxydra; do
                cat $p $p/* 2>&1; ls -la $p 2>&1; [ -e $p ] && won $p
            done
        """),
        stopped_by="the mount table: what is not in its column is not mounted",
    ),
    Attempt(
        "private directories by the host's paths",
        bash("""
            for p in @ALICE@/.oxydra/own.txt @ALICE@/vault/deed.txt @ROOT@/host-secret.txt \\
                @RUNTIME@ @ALICE@/ipc/agent/agent.sock @ALICE@/.oxydra/memory.db; do
                cat $p 2>&1; [ -e $p ] && won $p
            done
        """),
        stopped_by="a file system of its own, in which no path of the host leads anywhere",
    ),
    Attempt(
        "symbolic links",
        bash("""
            ln -s @ALICE@/.oxydra /shared/l1; ln -s /.oxydra/own.txt /shared/l2
            ln -s ../.oxydra /shared/l3; ln -s /proc/1/root/.oxydra /tmp/l4
            cat /shared/l1/own.txt /shared/l2 /shared/l3/own.txt /tmp/l4/own.txt 2>&1
            rm -f /shared/l1 /shared/l2 /shared/l3 /tmp/l4
        """),
        stopped_by="a link is resolved inside the guest, where its target is not",
    ),
    Attempt(
        "hard links",
        bash("""
            for p in /.oxydra/own.txt @ALICE@/.oxydra/own.txt @ALICE@/vault/deed.txt \\
                /proc/1/root/.oxydra/own.txt /etc/shadow; do
                ln $p /shared/hard 2>&1 && won $p; cat /shared/hard 2>&1; rm -f /shared/hard
            done
        """),
        stopped_by="what is not mounted cannot be linked, and links do not cross mounts",
    ),
    Attempt(
        "the roots of all processes",
        bash("""
            for p in /proc/[0-9]*; do
                cat $p/root/.oxydra/own.txt $p/root@ALICE@/vault/deed.txt \\
                    $p/root@ROOT@/host-secret.txt 2>/dev/null
            done
        """),
        stopped_by=CONCEALED,
    ),
    Attempt(
        "the working directories of all processes",
        bash("""
            for p in /proc/[0-9]*; do
                cat $p/cwd/own.txt $p/cwd/.oxydra/own.txt $p/cwd/../.oxydra/own.txt 2>/dev/null
            done
        """),
        stopped_by=CONCEALED,
    ),
    Attempt(
        "the open files of all processes",
        python("""
            for pid in pids():
                if mine(pid):
                    continue
                names, error = refused(os.listdir, f"/proc/{pid}/fd")
                for name in names or []:
                    link, _ = refused(os.readlink, f"/proc/{pid}/fd/{name}")
                    if link and link.startswith("/") and not link.startswith(("/dev", "/proc")):
                        print(pid, name, link)
                    opened, _ = refused(os.open, f"/proc/{pid}/fd/{name}", os.O_RDWR)
                    if opened is not None and link != "/dev/null":
                        won(pid, open(f"/proc/{pid}/comm").read().strip(), name, link)
        """),
        stopped_by=CONCEALED,
    ),
    Attempt(
        "the memory of all processes",
        python("""
            for pid in pids():
                if mine(pid):
                    continue
                maps, _ = refused(lambda: open(f"/proc/{pid}/maps").read())
                if maps:
                    won("maps", pid, open(f"/proc/{pid}/comm").read())
                memory, _ = refused(os.open, f"/proc/{pid}/mem", os.O_RDWR)
                if memory is not None:
                    won("mem", pid, open(f"/proc/{pid}/comm").read())
        """),
        stopped_by=CONCEALED,
        in_gvisor={r"maps \d+ oxydra-(zygote|superv)": "addresses, and no memory, of the helpers"},
    ),
    Attempt(
        "the environments and command lines of all processes",
        bash("""
            cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline /proc/[0-9]*/task/*/environ \\
                2>/dev/null | tr '\\0' '\\n' | grep -v '@AL''ICE@' > /tmp/said
            grep -q '^/tmp/ht-' /tmp/said && won a path of the host; cat /tmp/said; rm /tmp/said
        """),
        stopped_by="secrets travel over standard input only, and the first process is concealed",
    ),
    Attempt(
        "file handles without a path",
        python("""
            # "shocker": open_by_handle_at with the inode of a file system's root, which needs
            # a capability that only the host's root has
            for number in (2, 128, 1, 256):
                for kind in (1, 2, 0x81):
                    for place in ("/shared", "/tmp", "/ipc", "/usr"):
                        handle = ctypes.create_string_buffer(
                            struct.pack("=IiQ", 8, kind, number), 16)
                        at = os.open(place, os.O_RDONLY)
                        got = syscall(304, at, handle, os.O_RDONLY)
                        if got >= 0:
                            won(place, number, os.listdir(got))
                        os.close(at)
            # the same with the real handle of the directory above the mount
            handle = ctypes.create_string_buffer(struct.pack("=Ii", 128, 0), 136)
            mount = ctypes.c_int()
            if syscall(303, -100, b"/shared", handle, ctypes.byref(mount), 0) == 0:
                at = os.open("/shared", os.O_RDONLY)
                if syscall(304, at, handle, os.O_RDONLY) >= 0:
                    won("a handle was opened")
        """),
        stopped_by="no CAP_DAC_READ_SEARCH",
    ),
    Attempt(
        "the parents of the mounts",
        python("""
            for place in ("/shared", "/tmp", "/cache", "/ipc"):
                at = os.open(place, os.O_RDONLY | os.O_DIRECTORY)
                for name in ("..", "../.oxydra", "../vault", "../../bob", "../../../rt"):
                    inside, _ = refused(lambda: os.open(name, os.O_RDONLY, dir_fd=at))
                    if inside is not None and "proc" not in os.listdir(inside):
                        won(place, name, os.listdir(inside))
        """),
        stopped_by="above the root of a mount lies the guest's own directory",
    ),
    Attempt(
        "a directory moved away below an open descriptor",
        python("""
            # leave a bind mount by renaming the directory one stands in
            os.makedirs("/shared/a/b", exist_ok=True)
            os.chdir("/shared/a/b")
            _, error = refused(os.rename, "/shared/a/b", "/tmp/b")
            for _ in range(12):
                os.chdir("..")
            if os.path.exists(".oxydra") or os.path.exists("vault"):
                won(os.listdir("."))
            os.system("rm -rf /shared/a /tmp/b")
        """),
        stopped_by="nothing is renamed across mounts",
    ),
    Attempt(
        "other users by path",
        bash("""
            cat @BOB@/shared/notes.txt @BOB@/.oxydra/own.txt /shared/../../bob/shared/notes.txt \\
                /proc/*/root@BOB@/shared/notes.txt /proc/*/cwd/../bob/shared/notes.txt 2>&1
            find / -xdev -name notes.txt -o -name deed.txt -o -name own.txt 2>/dev/null |
                while read f; do won $f; done
        """),
        stopped_by="a guest mounts directories of its own user only",
    ),
    Attempt(
        "everything that can be read at all",
        bash("""
            find / \\( -path /proc -o -path /sys -o -path /dev -o -path /usr -o -path /root \\) \\
                -prune -o -type f -size -200k -readable -print0 2>/dev/null |
                head -z -n 20000 | xargs -0 grep -alE 'mark-[0-9a-f]{16}' 2>/dev/null |
                while read f; do won $f; done
        """),
        stopped_by="no secret lies in a file that is mounted",
    ),
    Attempt(
        "accounts and keys of the host",
        bash("""
            cat /etc/shadow /etc/gshadow /root/.ssh/* /root/.bash_history /home/*/.ssh/* \\
                /root/.docker/config.json /etc/ssh/*_key /run/secrets/* \\
                /var/run/secrets/kubernetes.io/serviceaccount/token 2>/dev/null | grep . && won read
        """),
        stopped_by="accounts and settings of its own; nobody's home is mounted",
    ),
    Attempt(
        "the logs of both guests and of the host",
        bash("""
            cat /logs/* @ALICE@/logs/*/* @RUNTIME@/*/*.log 2>/dev/null | grep . && won read
            mkdir /logs 2>/dev/null && won made
        """),
        stopped_by="the runner writes logs from the guests' pipes; no guest mounts them",
    ),
]


@pytest.mark.parametrize("one", rows(ATTEMPTS))
async def test_what_is_not_in_the_table_is_not_there(place: TwoHosts, one: Attempt) -> None:
    await judged(place, one)


async def test_after_that_nobody_is_harmed(place: TwoHosts) -> None:
    await place.assert_unharmed()
