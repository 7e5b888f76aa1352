"""Reaching whoever else runs on this machine: sockets, networks, the other processes."""
# ruff: noqa: E501 - scripts for bash and Python

import pytest

from tests.support.attempts import rows
from tests.support.boundary.two_hosts import Attempt, TwoHosts, bash, judged, python

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.stopped_in("process")]

NO_NETWORK = "a network namespace with nothing but its own loopback"

SOCKETS = [
    Attempt(
        "the sockets of gateway, control and engine by path",
        python("""
            import glob
            names = ["/ipc/agent.sock", "/ipc/../agent.sock", "@ALICE@/ipc/agent/agent.sock",
                "@BOB@/ipc/agent/agent.sock", "@BOB@/ipc/shell/shell.sock", "/embedder/embedder.sock",
                "/var/run/docker.sock", "/run/docker.sock", "/run/containerd/containerd.sock",
                "/run/podman/podman.sock", "/run/dbus/system_bus_socket", "/tmp/.X11-unix/X0",
                "/run/systemd/private", "/run/user/0/bus"]
            names += glob.glob("@RUNTIME@/**", recursive=True)
            names += [f"/proc/{pid}/root{name}" for pid in pids() for name in names[:5]]
            for name in names:
                with socket.socket(socket.AF_UNIX) as way:
                    way.settimeout(2)
                    if refused(way.connect, name)[1] is None: won(name)
        """),
        stopped_by="of all sockets only the daemon's own and egress's listener are mounted",
    ),
    Attempt(
        "sockets by a search of the file system",
        bash("""
            find / -path /proc -prune -o -type s -print 2>/dev/null |
                grep -v -e '^/ipc/shell.sock$' -e '^/egress/http.sock$' |
                while read s; do won $s; done
        """),
        stopped_by="of all sockets only the daemon's own and egress's listener are mounted",
    ),
    Attempt(
        "sockets by their abstract names",
        python("""
            names = {line.split()[-1] for line in open("/proc/net/unix").readlines()[1:]}
            for name in names | {"@/containerd-shim", "@/tmp/.X11-unix/X0", "@oxydra"}:
                if name.startswith("@"):
                    with socket.socket(socket.AF_UNIX) as way:
                        if refused(way.connect, chr(0) + name[1:])[1] is None: won(name)
            for line in open("/proc/net/unix"):
                if "gateway" in line or "docker" in line or "control" in line: won(line)
        """),
        stopped_by="a network namespace of its own",
    ),
    Attempt(
        "its own socket without a token, with guesses and with the old ones",
        python("""
            sys.path[:0] = ["/opt/oxydra/lib/python3.11/site-packages"]
            preface = b"PRI * HTTP/2.0\\r\\n\\r\\nSM\\r\\n\\r\\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
            def text(name, value):
                return b"\\0" + bytes([len(name)]) + name + bytes([len(value)]) + value
            for token in (None, b"", b"token", b"x" * 43, b"Bearer x", b"0" * 64):
                head = b"".join(text(*pair) for pair in (
                    (b":method", b"POST"), (b":scheme", b"http"), (b":authority", b"x"),
                    (b":path", b"/wire.v1.Shell/Hello"), (b"te", b"trailers"),
                    (b"content-type", b"application/grpc")))
                if token is not None:
                    for name in (b"x-oxydra-token", b"authorization", b"oxydra-token"):
                        head += text(name, token)
                body = bytes(5)
                frame = len(head).to_bytes(3, "big") + bytes([1, 4, 0, 0, 0, 1]) + head
                frame += len(body).to_bytes(3, "big") + bytes([0, 1, 0, 0, 0, 1]) + body
                with socket.socket(socket.AF_UNIX) as way:
                    way.settimeout(1)
                    way.connect("/ipc/shell.sock")
                    way.sendall(preface + frame)
                    got = b""
                    while b"grpc-status" not in got and b"16" not in got:
                        more, _ = refused(way.recv, 4096)
                        if not more: break
                        got += more
                    if b"0.1.0" in got: won("Hello answered", token)
                    print(len(got))
        """),
        stopped_by="mutual TLS: who has no certificate of this runner is not heard",
    ),
    Attempt(
        "rubbish and half sentences at its own socket",
        python("""
            ways = []
            for number in range(60):
                way = socket.socket(socket.AF_UNIX)
                way.settimeout(1)
                if refused(way.connect, "/ipc/shell.sock")[1] is None:
                    refused(way.sendall, os.urandom(512) if number % 2 else b"PRI * HTTP/2.0")
                    ways.append(way)
            print(len(ways))
        """),
        stopped_by="the daemon drops what is no TLS",
    ),
    Attempt(
        "a process of ours that lends a descriptor",
        python("""
            # whoever connects to us must not hand over anything; and we cannot take it
            way = socket.socket(socket.AF_UNIX)
            way.connect("/ipc/shell.sock")
            way.settimeout(1)
            got, error = refused(socket.recv_fds, way, 100, 8)
            if got and got[1]: won(got)
            credentials = struct.unpack("=3i", way.getsockopt(1, 17, 12))
            print(credentials)
        """),
        stopped_by="the daemon passes no descriptor over its socket",
    ),
]

NETWORK = [
    Attempt(
        "the host by every address it has",
        python("""
            for address in "@ADDRESSES@".split() + ["localhost", "0.0.0.0", "172.17.0.1",
                    "host.docker.internal", "gateway.docker.internal", "::1", "10.0.2.2"]:
                for port in (@PORT@, 22, 2375, 2376, 9):
                    _, error = refused(lambda: socket.create_connection((address, port), 1).close())
                    if error is None: won(address, port)
        """),
        stopped_by=NO_NETWORK,
    ),
    Attempt(
        "the metadata address and other private networks",
        python("""
            for address in ("169.254.169.254", "169.254.170.2", "100.100.100.200", "192.168.0.1",
                    "10.0.0.1", "172.17.0.2", "172.18.0.2", "fd00:ec2::254", "1.1.1.1", "8.8.8.8"):
                for port in (80, 443, 53):
                    _, error = refused(lambda: socket.create_connection((address, port), 1).close())
                    if error is None: won(address, port)
        """),
        stopped_by=NO_NETWORK,
    ),
    Attempt(
        "names",
        python("""
            for name in ("example.org", "host.docker.internal", "metadata.google.internal",
                    "oxydra-agent", "api.openai.com"):
                got, error = refused(socket.getaddrinfo, name, 80)
                if got: won(name, got)
            for server in ("127.0.0.11", "127.0.0.53", "8.8.8.8", "@ADDRESSES@".split()[-1]):
                with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as way:
                    way.settimeout(0.3)
                    refused(way.sendto, bytes.fromhex("00010100000100000000000007"
                        "6578616d706c65036f72670000010001"), (server, 53))
                    if refused(way.recv, 512)[0]: won("DNS from", server)
        """),
        stopped_by=NO_NETWORK,
    ),
    Attempt(
        "raw and packet sockets",
        python("""
            for family, kind, number in ((2, 3, 1), (2, 3, 255), (10, 3, 58), (17, 3, 3), (17, 2, 3)):
                way, _ = refused(socket.socket, family, kind, number)
                if way is not None: won(family, kind)
        """),
        stopped_by="no CAP_NET_RAW",
    ),
    Attempt(
        "netlink: making and moving interfaces",
        python("""
            def ask(kind, payload, flags=0x605):
                way = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
                way.settimeout(2)
                way.send(struct.pack("=IHHII", 16 + len(payload), kind, flags, 1, 0) + payload)
                answer = way.recv(4096)
                return struct.unpack("=i", answer[16:20])[0]
            up = struct.pack("=BBHiII", 0, 0, 0, 1, 1, 1)
            address = struct.pack("=BBBBI", 2, 8, 0, 0, 1) + struct.pack("=HH4B", 8, 2, 10, 9, 8, 7)
            link = struct.pack("=BBHiII", 0, 0, 0, 0, 0, 0) + struct.pack("=HH4s", 8, 3, b"ox0")
            for name, kind, payload in (("up", 16, up), ("address", 20, address), ("link", 16, link)):
                got, error = refused(ask, kind, payload)
                if got == 0: won(name)
        """),
        stopped_by="no CAP_NET_ADMIN",
    ),
    Attempt(
        "every interface and route",
        python("""
            names = {line.split(":")[0].strip() for line in open("/proc/net/dev").readlines()[2:]}
            if names - {"lo", "tunl0", "sit0", "gre0", "gretap0", "erspan0", "ip6tnl0", "ip_vti0",
                    "ip6_vti0", "ip6gre0"}: won(names)
            routes = open("/proc/net/route").readlines()[1:]
            if routes: won(routes)
        """),
        stopped_by=NO_NETWORK,
    ),
    Attempt(
        "vsock, bluetooth, can, tipc and other families",
        python("""
            for family in range(3, 46):
                if family in (1, 2, 10, 16): continue
                for kind in (1, 2, 3, 5):
                    way, _ = refused(socket.socket, family, kind, 0)
                    if way is None: continue
                    if family == 40 and refused(way.connect, (2, 22))[1] is None: won("vsock")
                    if family == 17: won("packet")
                    way.close()
        """),
        stopped_by="no network, and the daemon's filter of system calls",
    ),
    Attempt(
        "services of others on our own loopback",
        python("""
            for line in open("/proc/net/tcp").readlines()[1:] + open("/proc/net/udp").readlines()[1:]:
                won(line)
        """),
        stopped_by="a network namespace of its own",
    ),
]

PROCESSES = [
    Attempt(
        "processes of the host and of others",
        python("""
            allowed = ("bash", "python3", "sh", "sleep", "oxydra-", "docker-init", "cat", "tr", "grep",
                "yes", "python")
            for pid in pids():
                name, _ = refused(lambda: open(f"/proc/{pid}/comm").read().strip())
                if name and not name.startswith(allowed): won(pid, name)
            if len(pids()) > 60: won("so many", len(pids()))
        """),
        stopped_by="a process namespace of its own",
    ),
    Attempt(
        "killing pids of the host",
        python("""
            import signal
            ours = set(pids())
            for pid in [*range(2, 40000, 7), 2**22 - 1]:
                if pid in ours: continue
                _, error = refused(os.kill, pid, 0)
                if error is None and pid not in pids():
                    gone = refused(os.kill, pid, 0)[1] is not None
                    if not gone and not os.path.exists(f"/proc/{pid}"): won(pid)
        """),
        stopped_by="a process namespace of its own",
    ),
    Attempt(
        "SIGKILL and SIGSTOP to process 1",
        python("""
            import signal
            refused(os.kill, 1, signal.SIGSTOP)
            refused(os.kill, 1, signal.SIGKILL)
        """),
        stopped_by="the first process of a guest gets no such signal from inside it",
    ),
    Attempt(
        "message queues, semaphores and shared memory of others",
        bash("""
            cat /proc/sysvipc/shm /proc/sysvipc/sem /proc/sysvipc/msg 2>/dev/null | grep -v key &&
                won System V
            ls -A /dev/mqueue 2>/dev/null | grep . && won queues
            ls -A /dev/shm | grep -v '^hostile' && won shared memory; true
        """),
        stopped_by="an IPC namespace of its own",
    ),
    Attempt(
        "terminals",
        python("""
            import fcntl, glob, termios
            for name in ["/dev/tty", "/dev/console", "/dev/tty0", *glob.glob("/dev/pts/[0-9]*")]:
                at, _ = refused(os.open, name, os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK)
                if at is None: continue
                if refused(fcntl.ioctl, at, termios.TIOCSTI, b"x")[1] is None: won("typed at", name)
                else: print(name)
        """),
        stopped_by="a session without a terminal, and a devpts of its own",
    ),
]

PROGRAMS = [
    Attempt(
        "writing the daemon's code",
        python("""
            import glob
            places = ["/opt/oxydra", sys.prefix, sys.base_prefix, "/usr/lib/python3", "/usr/bin"]
            for line in open("/proc/self/mountinfo"):
                places.append(line.split()[4])
            own = ("/shared", "/tmp", "/cache", "/var/tmp", "/ipc", "/run", "/dev/shm", "/proc", "/dev")
            for place in places:
                if not place.startswith(own) and os.path.isdir(place) and os.access(place, os.W_OK):
                    _, error = refused(os.mkdir, place + "/hostile")
                    if error is None: won(place)
            import site
            for place in (*site.getsitepackages(), "/usr/local/lib/python3.11/site-packages"):
                if refused(lambda: open(place + "/x.pth", "w"))[1] is None: won(place)
        """),
        stopped_by="programs are mounted read only",
    ),
    Attempt(
        "code that the daemon would load: LD_PRELOAD, HOME, PYTHON variables, the working directory",
        bash("""
            mkdir -p /tmp/usercustomize 2>/dev/null
            for p in /run/.local/lib/python3.11/site-packages /run /etc /etc/ld.so.preload \\
                /shared /usr/lib/python3/dist-packages; do
                [ -d $p ] && echo 'import os; os.write(2, b"W" b"ON: loaded")' 2>/dev/null \\
                    > $p/sitecustomize.py 2>/dev/null
                [ -d $p ] && cp /dev/null $p/grpc.py 2>/dev/null
            done
            (echo /shared/x.so > /etc/ld.so.preload) 2>/dev/null && won ld.so.preload
            rm -f /shared/sitecustomize.py /shared/grpc.py; rmdir /tmp/usercustomize; true
        """),
        stopped_by="the daemon runs isolated, with nothing on its path that commands can write",
    ),
    Attempt(
        "another environment for the next command",
        bash("""
            echo 'echo "W""ON: profile"' > /tmp/.bashrc; cp /tmp/.bashrc /tmp/.profile
            cp /tmp/.bashrc /tmp/.bash_profile
            bash -c true; rm -f /tmp/.bashrc /tmp/.profile /tmp/.bash_profile
            (echo x >> /etc/profile || echo x >> /etc/bash.bashrc || echo x > /etc/environment) \\
                2>/dev/null && won the profile of all; true
        """),
        stopped_by="the shell reads no profile, and /etc is read only",
    ),
    Attempt(
        "its own environment and command line",
        bash("""
            env; set; export -p; cat /proc/self/environ /proc/self/cmdline | tr '\\0' '\\n' | tail -n 3
            env | grep -iE 'key|token|secret|password|docker' && won env; true
        """),
        stopped_by="the environment is what the launch says, and no secret is in it",
    ),
    Attempt(
        "variables the caller may not set",
        bash("env | grep -E '^(LD_PRELOAD|BASH_ENV|PYTHONPATH)=' && won set; true"),
        stopped_by="a command's environment is made anew, without what the daemon has",
    ),
]


@pytest.mark.parametrize("one", rows([*SOCKETS, *NETWORK, *PROCESSES, *PROGRAMS]))
async def test_nobody_else_is_in_reach(place: TwoHosts, one: Attempt) -> None:
    await judged(place, one)


async def test_everybody_else_is_still_there(place: TwoHosts) -> None:
    await place.assert_unharmed()
