"""Getting more rights from the kernel: mounts, namespaces, devices, tracing, capabilities."""
# ruff: noqa: E501 - scripts for bash and Python

import pytest

from tests.support.attempts import rows
from tests.support.boundary.two_hosts import Attempt, TwoHosts, bash, judged, python

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.stopped_in("process", "micro_vm"),
]

NO_ADMIN = "no CAP_SYS_ADMIN, nor a user namespace that would give it"
CONCEALED = "processes of the host are not seen, and those of the daemon are concealed"
DAEMONS_FILTER = "the filter of system calls that the daemon puts itself and its commands under"

MOUNTS = [
    Attempt(
        "bind mounts",
        bash("""
            mkdir -p /shared/m
            for p in / /proc/1/root @ALICE@/.oxydra /tmp; do
                mount --bind $p /shared/m 2>&1 && won bind $p
                mount --rbind $p /shared/m 2>&1 && won rbind $p
            done; rmdir /shared/m
        """),
        stopped_by=NO_ADMIN,
    ),
    Attempt(
        "remounting what is read only",
        bash("""
            for p in / /usr /proc /proc/sys /dev /etc/passwd /sys; do
                mount -o remount,rw $p 2>&1 && won $p; mount -o remount,bind,rw $p 2>&1 && won $p
            done
            (touch /usr/x || touch /etc/x || touch /x || touch /dev/x) 2>&1 && won written
            true
        """),
        stopped_by=NO_ADMIN,
    ),
    Attempt(
        "new file systems: tmpfs, overlay, proc, sysfs, cgroup, devpts, fuse",
        python("""
            os.makedirs("/shared/n", exist_ok=True)
            for kind, options in ((b"tmpfs", None), (b"proc", None), (b"sysfs", None),
                    (b"overlay", b"lowerdir=/,upperdir=/tmp,workdir=/shared"), (b"devpts", None),
                    (b"cgroup", b"memory"), (b"cgroup2", None), (b"debugfs", None),
                    (b"fuse", b"fd=0,rootmode=40000,user_id=0,group_id=0"), (b"ext4", None)):
                if call("mount", b"none", b"/shared/n", kind, 0, options) == 0:
                    won(kind)
            os.rmdir("/shared/n")
        """),
        stopped_by=NO_ADMIN,
    ),
    Attempt(
        "the new mount calls: fsopen, open_tree, move_mount, mount_setattr",
        python("""
            if syscall(430, b"tmpfs", 0) >= 0: won("fsopen")
            if syscall(428, -100, b"/", 1) >= 0: won("open_tree clone")
            if syscall(429, -100, b"/shared", -100, b"/tmp", 0) == 0: won("move_mount")
            attributes = struct.pack("=QQQQ", 0, 1, 0, 0)
            if syscall(442, -100, b"/usr", 0, attributes, 32) == 0: won("mount_setattr")
        """),
        stopped_by=NO_ADMIN,
    ),
    Attempt(
        "taking mounts away",
        bash("""
            for p in /shared /tmp /proc /proc/sys /usr /dev /dev/shm /ipc; do
                umount $p 2>&1 && won $p; umount -l $p 2>&1 && won lazily $p
            done; true
        """),
        stopped_by=NO_ADMIN,
    ),
    Attempt(
        "chroot and pivot_root",
        python("""
            os.makedirs("/shared/r", exist_ok=True)
            for place in ("/shared/r", "/", "/proc/1/root"):
                if refused(os.chroot, place)[1] is None: won("chroot", place)
            if syscall(155, b"/shared", b"/shared/r") == 0: won("pivot_root")
            os.rmdir("/shared/r")
        """),
        stopped_by="no CAP_SYS_CHROOT, no CAP_SYS_ADMIN",
    ),
]

NAMESPACES = [
    Attempt(
        "unshare, every kind",
        python("""
            import subprocess
            for name, flag in (("mount", 0x20000), ("cgroup", 0x2000000), ("uts", 0x4000000),
                    ("ipc", 0x8000000), ("pid", 0x20000000), ("net", 0x40000000)):
                if call("unshare", flag) == 0: won(name)
            # Where user namespaces can be made, they must give nothing over what is outside.
            if call("unshare", 0x10000000) == 0:
                print("a user namespace was made")
                for place in ("/proc/sys/kernel/hostname", "/proc/sys/kernel/core_pattern"):
                    if refused(os.open, place, os.O_WRONLY)[1] is None: won("wrote", place)
                for number in (1, 2):
                    if refused(os.open, f"/proc/{number}/mem", os.O_RDWR)[1] is None: won("mem")
        """),
        stopped_by=NO_ADMIN,
    ),
    Attempt(
        "a user namespace with root in it",
        bash("""
            unshare -Ur sh -c 'cat /.oxydra/own.txt @ALICE@/vault/deed.txt /proc/1/environ' 2>&1
            unshare -Urm sh -c 'mount --bind / /tmp && cat /tmp@ALICE@/.oxydra/own.txt' 2>&1
            unshare -UrmpfC --mount-proc sh -c 'cat /proc/1/root@ALICE@/.oxydra/own.txt' 2>&1
            unshare -Urn sh -c 'echo > /dev/tcp/127.0.0.1/@PORT@' 2>/dev/null && won network
            true
        """),
        stopped_by=NO_ADMIN,
    ),
    Attempt(
        "clone and clone3 with new namespaces",
        python("""
            for flag in (0x20000, 0x10000000, 0x10020000, 0x50000000):
                pid = syscall(56, flag | 17, 0, 0, 0, 0)
                if pid == 0:
                    os.write(1, b"inside\\n")
                    at = refused(os.open, "@ALICE@/.oxydra/own.txt", os.O_RDONLY)[0]
                    if at is not None: os.write(1, b"W" b"ON: clone\\n")
                    os._exit(0)
                if pid > 0: os.waitpid(pid, 0)
        """),
        stopped_by=NO_ADMIN,
    ),
    Attempt(
        "entering the namespaces of other processes",
        bash("""
            for p in 1 $(ls /proc | grep -E '^[0-9]+$'); do
                for n in -m -n -p -u -i -C -U; do
                    nsenter -t $p $n cat @ALICE@/.oxydra/own.txt @ROOT@/host-secret.txt 2>&1
                done
            done | grep -v -e failed -e 'cannot open' -e 'No such' -e 'not permitted' -e neither
            true
        """),
        stopped_by=NO_ADMIN,
    ),
    Attempt(
        "setns with descriptors of processes",
        python("""
            for pid in pids():
                at, _ = refused(os.pidfd_open, pid)
                for flag in (0x20000, 0x40000000, 0x10000000, 0x20000000, 0x2000000):
                    if at is not None and call("setns", at, flag) == 0: won(pid, hex(flag))
                for name in ("mnt", "net", "user", "pid", "cgroup", "ipc", "uts"):
                    at2, _ = refused(os.open, f"/proc/{pid}/ns/{name}", os.O_RDONLY)
                    if at2 is not None:
                        if call("setns", at2, 0) == 0: won(pid, name)
                        os.close(at2)
                    parent = -1 if at2 is None else -1
        """),
        stopped_by=NO_ADMIN,
    ),
    Attempt(
        "the parents of our namespaces",
        python("""
            import fcntl
            for name in ("user", "pid"):
                at, _ = refused(os.open, f"/proc/self/ns/{name}", os.O_RDONLY)
                for request in (0xb701, 0xb702):
                    got, _ = refused(fcntl.ioctl, at, request)
                    if got is not None and call("setns", got, 0) == 0: won(name, request)
        """),
        stopped_by="the kernel shows no namespace above one's own",
    ),
]

DEVICES = [
    Attempt(
        "making device nodes",
        bash("""
            for d in "sda b 8 0" "mem c 1 1" "kmem c 1 2" "port c 1 4" "fuse c 10 229" "loop b 7 0"; do
                set -- $d; for place in /shared /tmp /ipc /dev/shm /run; do
                    mknod $place/$1 $2 $3 $4 2>&1 && { won $place $d; head -c 16 $place/$1; rm $place/$1; }
                done
            done; true
        """),
        stopped_by="the daemon's filter refuses device nodes, and there is no CAP_MKNOD",
    ),
    Attempt(
        "opening devices of the host",
        bash("""
            for d in mem kmem port kmsg sda sda1 vda vda1 nvme0n1 dm-0 loop0 loop-control mapper/control \\
                fuse kvm vhost-net net/tun uinput input/event0 hpet cuse btrfs-control snapshot \\
                vsock autofs rtc0 watchdog cpu/0/msr; do
                [ -r /dev/$d ] && head -c 1 /dev/$d > /dev/null 2>&1 && won read $d
                [ -w /dev/$d ] && won write $d
            done; ls -l /dev; true
        """),
        stopped_by="a /dev of its own, with null, zero, full, random, terminals and no more",
        in_gvisor={
            "write (fuse|net/tun)": "devices of gVisor's own kernel, which need capabilities"
        },
    ),
    Attempt(
        "the kernel's memory, logs and addresses",
        bash("""
            head -c 64 /proc/kcore 2>/dev/null | grep -q . && won kcore
            head -c 64 /proc/vmcore /proc/kpagemap /proc/kmsg 2>/dev/null | grep -qa '[^=> ]\\{20\\}' && won kmsg
            dmesg 2>/dev/null | grep -q . && won dmesg
            awk '$1 !~ /^0+$/ { n++ } END { exit !(n > 0) }' /proc/kallsyms 2>/dev/null && won kallsyms
            cat /proc/timer_list /proc/sched_debug /proc/keys 2>/dev/null | grep -q hrtimer && won timers
            true
        """),
        stopped_by="those files of /proc are covered, or closed to who has no capability",
        in_gvisor={"dmesg": "what gVisor's own kernel says, the same jokes in every guest"},
    ),
    Attempt(
        "the kernel's settings below /proc",
        bash("""
            for f in sys/kernel/core_pattern sys/kernel/modprobe sys/kernel/hotplug sys/vm/overcommit_memory \\
                sys/kernel/panic sys/fs/binfmt_misc/register sysrq-trigger irq/default_smp_affinity \\
                sys/kernel/randomize_va_space sys/kernel/yama/ptrace_scope sys/kernel/ns_last_pid \\
                sys/net/ipv4/ip_forward sys/user/max_user_namespaces sys/kernel/hostname scsi/scsi; do
                ( echo h > /proc/$f ) 2>/dev/null && won $f
            done; true
        """),
        stopped_by="/proc/sys and its like are mounted read only",
    ),
    Attempt(
        "/sys and control groups, release_agent among them",
        bash("""
            for f in $(find /sys -maxdepth 6 -type f -writable 2>/dev/null | head -n 200); do won $f; done
            find /sys/fs/cgroup -name release_agent -writable 2>/dev/null | while read f; do won $f; done
            for d in /sys/fs/cgroup /sys/fs/cgroup/memory /sys/fs/cgroup/pids /sys/fs/cgroup/rdma; do
                mkdir $d/x 2>/dev/null && won $d
            done
            echo 1 > /sys/kernel/uevent_helper 2>/dev/null && won uevent_helper; true
        """),
        stopped_by="/sys is mounted read only, or not at all",
    ),
]

RIGHTS = [
    Attempt(
        "ptrace: attach and seize",
        python("""
            for pid in pids():
                if mine(pid): continue
                for request in (16, 0x4206):
                    if libc.ptrace(request, pid, None, None) == 0: won(pid, request)
        """),
        stopped_by=CONCEALED,
    ),
    Attempt(
        "process_vm_readv and process_vm_writev",
        python("""
            # where something lies in a Python of the same build: our own addresses, and guesses
            places = [int(line.split("-")[0], 16) for line in open("/proc/self/maps")][:40]
            buffer = ctypes.create_string_buffer(64)
            local = (ctypes.c_void_p * 2)(ctypes.addressof(buffer), 64)
            for pid in pids():
                if mine(pid): continue
                for at in places:
                    remote = (ctypes.c_void_p * 2)(at, 64)
                    for name in ("process_vm_readv", "process_vm_writev"):
                        error = call(name, pid, local, 1, remote, 1, 0)
                        if error >= 0 or error == -errno.EFAULT: won(pid, name, error)
        """),
        stopped_by=CONCEALED,
    ),
    Attempt(
        "descriptors of other processes by pidfd_getfd",
        python("""
            for pid in pids():
                if mine(pid): continue
                at, _ = refused(os.pidfd_open, pid)
                for number in range(16):
                    if at is not None and syscall(438, at, number, 0) >= 0: won(pid, number)
        """),
        stopped_by=CONCEALED,
    ),
    Attempt(
        "modules and another kernel",
        python("""
            module = os.memfd_create("m"); os.write(module, b"\\x7fELF")
            if syscall(175, b"\\x7fELF", 4, b"") in (0, -errno.ENOEXEC): won("init_module")
            if syscall(313, module, b"", 0) in (0, -errno.ENOEXEC): won("finit_module")
            if syscall(176, b"ext4", 0) != -errno.EPERM and syscall(176, b"ext4", 0) == 0: won("delete")
            if syscall(246, 0, 0, 0, 0) == 0: won("kexec_load")
            if syscall(320, module, -1, 0, b"", 0) == 0: won("kexec_file_load")
            os.system("modprobe overlay 2>/dev/null && echo W''ON: modprobe")
        """),
        stopped_by="no CAP_SYS_MODULE, no CAP_SYS_BOOT",
    ),
    Attempt(
        "bpf",
        python("""
            # a map, and a program that only returns
            if syscall(321, 0, struct.pack("=IIIII", 1, 4, 8, 1, 0), 20) >= 0: won("map")
            code = struct.pack("=BBhi", 0xb7, 0, 0, 0) + struct.pack("=BBhi", 0x95, 0, 0, 0)
            text, licence = ctypes.create_string_buffer(code), ctypes.create_string_buffer(b"GPL")
            for kind in (2, 5, 6, 8, 17):
                given = struct.pack("=IIQQIIQ", kind, 2, ctypes.addressof(text),
                    ctypes.addressof(licence), 0, 0, 0)
                if syscall(321, 5, given, len(given)) >= 0: won("program", kind)
            for command in (11, 12, 13, 14):
                if syscall(321, command, struct.pack("=QQ", 0, 0), 16) >= 0: won("walk", command)
        """),
        stopped_by="no CAP_BPF, no CAP_SYS_ADMIN",
    ),
    Attempt(
        "perf_event_open on everything",
        python("""
            for kind in range(5):
                given = struct.pack("=IIQQQQQ", kind, 112, 0, 0, 0, 0, 0).ljust(112, b"\\0")
                if syscall(298, given, -1, 0, -1, 0) >= 0: won("all of a processor", kind)
                for pid in pids():
                    if not mine(pid) and syscall(298, given, pid, -1, -1, 0) >= 0: won(pid)
        """),
        stopped_by="no CAP_PERFMON, and a filter of system calls in containers",
    ),
    Attempt(
        "set-uid bits on a file that the operator will own",
        python("""
            import subprocess
            os.umask(0)
            def bits(path): return os.path.exists(path) and os.lstat(path).st_mode & 0o6000
            place = "/shared/set-id"
            os.makedirs(place)
            for mode in (0o4755, 0o2755, 0o6777):
                made = [f"{place}/{number}" for number in range(8)]
                open(made[0], "w").close()
                refused(os.chmod, made[0], mode)
                at = os.open(made[0], os.O_RDWR)
                refused(os.fchmod, at, mode)
                here = os.open(place, os.O_RDONLY)
                refused(lambda: os.chmod("0", mode, dir_fd=here))
                syscall(452, -100, made[0].encode(), mode, 0)
                refused(os.open, made[1], os.O_CREAT | os.O_WRONLY, mode)
                syscall(2, made[2].encode(), os.O_CREAT | os.O_WRONLY, mode)
                syscall(85, made[3].encode(), mode)
                refused(os.mknod, made[4], stat.S_IFREG | mode)
                syscall(133, made[5].encode(), stat.S_IFREG | mode, 0)
                how = struct.pack("=QQQ", os.O_CREAT | os.O_WRONLY, mode, 0)
                syscall(437, -100, made[6].encode(), how, 24)
                inside, _ = refused(os.open, place, os.O_TMPFILE | os.O_RDWR, mode)
                if inside is not None: refused(os.link, f"/proc/self/fd/{inside}", made[7])
                for path in filter(bits, made): won(path, oct(mode))
                subprocess.run(["rm", "-f", *made])
            os.rmdir(place)
        """),
        stopped_by=DAEMONS_FILTER,
    ),
    Attempt(
        "a lease, for which whoever opens the file must wait",
        python("""
            import fcntl
            at = os.open("/shared/leased", os.O_CREAT | os.O_RDWR)
            for kind in (fcntl.F_WRLCK, fcntl.F_RDLCK):
                if refused(fcntl.fcntl, at, 1024, kind)[1] is None: won("lease", kind)
            os.unlink("/shared/leased")
        """),
        stopped_by=DAEMONS_FILTER,
    ),
    Attempt(
        "a socket to the hypervisor",
        python("""
            for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
                if refused(socket.socket, 40, kind)[1] is None: won("vsock", kind)
                if syscall(41 | 0x40000000, 40, kind, 0) >= 0: won("vsock by x32", kind)
                if int80(359, 40, kind, 0) >= 0: won("vsock by int 80", kind)
                if int80(102, 1, low(struct.pack("III", 40, kind, 0))) >= 0: won("by socketcall", kind)
        """),
        stopped_by=DAEMONS_FILTER,
    ),
    Attempt(
        "keys of the kernel",
        python("""
            # the keyrings of the session and user from which others' keys could be read
            def read(number):
                buffer = ctypes.create_string_buffer(4096)
                got = syscall(250, 11, number, buffer, 4096)
                return buffer.raw[:got] if got > 0 else b""
            for ring in (-1, -2, -3, -4, -5, -6, -7, -8):
                found = read(ring)
                for at in range(0, len(found), 4):
                    key, = struct.unpack_from("=i", found, at)
                    print(ring, key, read(key))
                named = syscall(250, 10, ring, b"user", b"oxydra-test", 0)
                if named > 0: won("found by its name", named, read(named))
            if read(@KEY@): won("read by its number", read(@KEY@))
            for command in (0, 1, 3, 5, 6, 8, 9, 12, 15, 16, 18, 22):
                if syscall(250, command, @KEY@, -3) >= 0: won("keyctl", command)
            if syscall(249, b"user", b"oxydra-test", None, -3) >= 0: won("request_key")
            for number in (248, 249, 250):
                if syscall(number | 0x40000000, 0, -3, 0) not in (-errno.EPERM, -errno.ENOSYS): won("x32")
            for number in (286, 287, 288):
                if int80(number) not in (-errno.EPERM, -errno.ENOSYS): won("int 80", number)
            if int80(288, 11, @KEY@, low(b""), 4096) >= 0: won("read by int 80")
            print(refused(lambda: open("/proc/keys").read()))
            print(refused(lambda: open("/proc/key-users").read()))
        """),
        stopped_by="an empty session keyring, and a filter of system calls",
    ),
    Attempt(
        "userfaultfd of the kernel's own faults",
        python("""
            at = syscall(323, os.O_CLOEXEC)
            if at >= 0: won("faults of the kernel can be held up")
            if refused(os.open, "/dev/userfaultfd", os.O_RDWR)[1] is None: won("device")
        """),
        stopped_by="no CAP_SYS_PTRACE, and no device",
    ),
    Attempt(
        "io_uring with other credentials",
        python("""
            at = syscall(425, 4, ctypes.create_string_buffer(120))
            if at >= 0:
                # a personality is a copy of our own credentials: it must not be of others
                got = syscall(427, at, 9, None, 0)
                print("io_uring", got, os.getuid())
            for pid in pids():
                if not mine(pid) and refused(os.stat, f"/proc/{pid}/fd/3")[1] is None: won(pid)
        """),
        stopped_by=DAEMONS_FILTER,
        in_gvisor={r"\d+": "descriptors of the daemon's helpers are seen; none can be opened"},
    ),
    Attempt(
        "other users and groups",
        python("""
            for name in ("setuid", "setgid", "setfsuid"):
                for who in (0, 1, 65534):
                    got = call(name, who)
                    if name != "setfsuid" and got == 0: won(name, who)
            if call("setresuid", 0, 0, 0) == 0: won("setresuid")
            if refused(os.setgroups, [0])[1] is None: won("setgroups")
            if 0 in (os.getuid(), os.geteuid(), os.getgid(), os.getegid()): won("root")
            os.system("su -c id root </dev/null 2>&1; sudo -n id 2>&1; newuidmap 1 0 0 1 2>&1")
        """),
        stopped_by="no CAP_SETUID, no CAP_SETGID",
    ),
    Attempt(
        "programs that are setuid or have capabilities",
        bash("""
            cp /usr/bin/id /shared/id; chmod 6755 /shared/id 2>/dev/null; chown 0:0 /shared/id 2>/dev/null
            /shared/id | grep -q 'euid=0\\|uid=0' && won setuid; rm -f /shared/id
            for p in $(find /usr /bin /sbin -perm -4000 -o -perm -2000 2>/dev/null); do
                case $p in */su|*/newgrp|*/sg) sh -c "$p root -c id" </dev/null 2>&1 ;;
                    */mount) $p -a 2>&1 ;; *) $p --version </dev/null 2>&1 | head -n 1 ;; esac
            done | grep -E 'uid=0' && won root
            setcap cap_sys_admin+ep /usr/bin/cat 2>/dev/null && won setcap; true
        """),
        stopped_by="no-new-privileges, and mounts that are nosuid",
    ),
    Attempt(
        "capabilities, no-new-privileges and ambient rights",
        python("""
            status = dict(line.split(":\\t", 1) for line in open("/proc/self/status") if ":\\t" in line)
            sets = [name for name in status if name.startswith("Cap")]
            if not {"CapInh", "CapPrm", "CapEff", "CapBnd"} <= set(sets): won("hidden sets")
            for name in sets:
                if int(status[name], 16): won(name, status[name])
            if call("prctl", 39, 0, 0, 0, 0) != 1: won("may gain privileges")
            if call("prctl", 38, 0, 0, 0, 0) == 0: won("no_new_privs was taken back")
            for number in range(41):
                if call("prctl", 47, 2, number, 0, 0) == 0: won("ambient", number)
        """),
        stopped_by="all capabilities are dropped, also from the bounding set",
    ),
    Attempt(
        "clock, host name, swap, quota, reboot, accounting, limits",
        python("""
            if call("settimeofday", struct.pack("=qq", 1, 0), None) == 0: won("clock")
            if call("sethostname", b"x", 1) == 0: won("hostname")
            if call("swapon", b"/shared/x", 0) == 0: won("swap")
            if call("acct", b"/shared/x") == 0: won("acct")
            if syscall(169, 0xfee1dead, 672274793, 0, None) == 0: won("reboot")
            if call("iopl", 3) == 0: won("iopl")
            if call("nice", -5) >= 0 and os.getpriority(0, 0) < 0: won("priority")
            import resource
            for kind in (resource.RLIMIT_NOFILE, resource.RLIMIT_NPROC):
                hard = resource.getrlimit(kind)[1]
                wanted = hard + 1 if hard != resource.RLIM_INFINITY else None
                if wanted and refused(resource.setrlimit, kind, (wanted, wanted))[1] is None: won(kind)
        """),
        stopped_by="no capability for any of them",
    ),
    Attempt(
        "real-time scheduling and a shield from the memory killer",
        python("""
            if refused(os.sched_setscheduler, 0, os.SCHED_FIFO, os.sched_param(50))[1] is None:
                won("real time")
            def score(): return int(open("/proc/self/oom_score_adj").read())
            def lower(pid, value):
                at = os.open(f"/proc/{pid}/oom_score_adj", os.O_WRONLY)
                os.write(at, value)
            if score() < 900: won("others come first from the beginning", score())
            for pid in pids():
                if refused(lower, pid, b"-900")[1] is None: won("oom score of", pid)
                for value in (b"0", b"500", b"899"):
                    if @FLOOR@ and refused(lower, pid, value)[1] is None: won("oom score of", pid, value)
        """),
        stopped_by="no CAP_SYS_NICE; a floor that the engine sets; /proc is read-only in bubblewrap",
        in_gvisor={r"oom score of \d+": "its own, which gVisor keeps and nobody reads"},
    ),
]


@pytest.mark.parametrize("one", rows([*MOUNTS, *NAMESPACES, *DEVICES, *RIGHTS]))
async def test_the_kernel_gives_no_rights(place: TwoHosts, one: Attempt) -> None:
    await judged(place, one)


async def test_the_host_is_as_before_all_that(place: TwoHosts) -> None:
    await place.assert_unharmed()
