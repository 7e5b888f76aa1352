"""A real control plane: etcd, API server, scheduler and controllers as processes of this machine.

Built by tools/get_kubernetes.sh; etcd is Debian's.
"""

import base64
import contextlib
import json
import os
import signal
import ssl
import subprocess
import time
from pathlib import Path
from typing import Any, Final
from urllib.request import urlopen

from tests.support.kubernetes.certificates import Authority, Identity, signing_key
from tests.support.ports import free_port

PROGRAMS: Final = Path(__file__).parents[3] / ".venv/kubernetes"
ETCD: Final = Path("/usr/bin/etcd")
_READY_S: Final = 90.0
_LOST_AFTER: Final = "20s"
"""Without a sign of life for so long, a node counts as lost."""
_API: Final = "kube-apiserver"


class ControlPlane:
    """The processes, with all that they keep in `directory`.

    `address` is one of this machine that containers reach; 127.0.0.1 is served, too.
    """

    def __init__(self, directory: Path, address: str) -> None:
        self.directory = directory
        self.address = address
        self.authority = Authority()
        self.port, self._etcd_port, self._peer_port = (free_port() for _ in range(3))
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    @property
    def url(self) -> str:
        """Where the API server is found, from here and from containers."""
        return f"https://{self.address}:{self.port}"

    @property
    def ca_file(self) -> Path:
        """The authority that the API server is known by."""
        return self.directory / "ca.pem"

    @property
    def admin_kubeconfig(self) -> Path:
        """A kubeconfig of somebody who may do everything."""
        return self.directory / "admin.kubeconfig"

    @property
    def etcd_directory(self) -> Path:
        """All that the cluster stores."""
        return self.directory / "etcd"

    def start(self) -> None:
        """Start all of it; return when it is ready. What was started ends if one does not come."""
        self.directory.mkdir(parents=True, exist_ok=True)
        self._write_keys()
        try:
            self._start_etcd()
            self.start_api_server()
            self._start_controllers()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End all processes. Idempotent."""
        for name in reversed([*self._processes]):
            self._kill(name)

    def start_api_server(self) -> None:
        """Start the API server on its usual port; return when it is ready."""
        self._run(
            str(PROGRAMS / _API),
            f"--etcd-servers=http://127.0.0.1:{self._etcd_port}",
            "--bind-address=0.0.0.0",
            f"--advertise-address={self.address}",
            f"--secure-port={self.port}",
            "--service-cluster-ip-range=10.96.0.0/16",
            "--authorization-mode=RBAC",
            f"--tls-cert-file={self._file('server.pem')}",
            f"--tls-private-key-file={self._file('server.key')}",
            f"--client-ca-file={self.ca_file}",
            f"--kubelet-certificate-authority={self.ca_file}",
            f"--kubelet-client-certificate={self._file('kubelet-client.pem')}",
            f"--kubelet-client-key={self._file('kubelet-client.key')}",
            "--kubelet-preferred-address-types=InternalIP",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={self._file('accounts.key')}",
            f"--service-account-signing-key-file={self._file('accounts.key')}",
            "--feature-gates=BoundServiceAccountTokenVolume=true",
            "--allow-privileged=true",
            "--profiling=false",
        )
        self._until_ready()

    def kill_api_server(self) -> None:
        """End the API server at once. `start_api_server` brings it back."""
        self._kill(_API)

    def pause_api_server(self) -> None:
        """The API server answers nobody, but connections to it hold."""
        self._processes[_API].send_signal(signal.SIGSTOP)

    def resume_api_server(self) -> None:
        """The end of `pause_api_server`."""
        self._processes[_API].send_signal(signal.SIGCONT)

    def log(self, program: str = _API) -> str:
        """What one of the programs has printed."""
        return self._file(f"{program}.log").read_text(errors="replace")

    def admin_tls(self) -> ssl.SSLContext:
        """For connections to the API server as somebody who may do everything."""
        context = ssl.create_default_context(cafile=str(self.ca_file))
        context.load_cert_chain(self._file("admin.pem"), self._file("admin.key"))
        return context

    def kubeconfig(
        self, name: str, *, namespace: str = "default", token: str = "", user: str = ""
    ) -> Path:
        """A kubeconfig called `name` for a service account's token, or for `user` by certificate.

        Without either it is the administrator's.
        """
        if token:
            who: dict[str, Any] = {"token": token}
        else:
            who = _by_certificate(self.authority.issue(user) if user else self._admin)
        ca = base64.b64encode(self.authority.certificate.encode()).decode()
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [
                {
                    "name": "cluster",
                    "cluster": {"server": self.url, "certificate-authority-data": ca},
                }
            ],
            "users": [{"name": "user", "user": who}],
            "contexts": [
                {
                    "name": "context",
                    "context": {"cluster": "cluster", "user": "user", "namespace": namespace},
                }
            ],
            "current-context": "context",
        }
        return self._write(f"{name}.kubeconfig", json.dumps(content))

    def _write_keys(self) -> None:
        self._admin = self.authority.issue("admin", "system:masters")
        hosts = (self.address, "127.0.0.1", "localhost", "kubernetes.default.svc", "10.96.0.1")
        self._write("ca.pem", self.authority.certificate)
        self._write("accounts.key", signing_key())
        self._write_identity("admin", self._admin)
        self._write_identity("server", self.authority.issue("kube-apiserver", hosts=hosts))
        reader = self.authority.issue("kube-apiserver-kubelet-client", "system:masters")
        self._write_identity("kubelet-client", reader)
        self.kubeconfig("admin")
        self.kubeconfig("scheduler", user="system:kube-scheduler")
        self.kubeconfig("controllers", user="system:kube-controller-manager")

    def _start_etcd(self) -> None:
        client = f"http://127.0.0.1:{self._etcd_port}"
        peer = f"http://127.0.0.1:{self._peer_port}"
        self._run(
            str(ETCD),
            f"--data-dir={self.etcd_directory}",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}",
        )

    def _start_controllers(self) -> None:
        ports = [free_port(), free_port()]
        for port, (program, who, options) in zip(
            ports,
            (
                ("kube-scheduler", "scheduler", ()),
                (
                    "kube-controller-manager",
                    "controllers",
                    (
                        f"--service-account-private-key-file={self._file('accounts.key')}",
                        f"--root-ca-file={self.ca_file}",
                        f"--node-monitor-grace-period={_LOST_AFTER}",
                        "--node-monitor-period=2s",
                        "--use-service-account-credentials=true",
                    ),
                ),
            ),
            strict=True,
        ):
            self._run(
                str(PROGRAMS / program),
                f"--kubeconfig={self._file(f'{who}.kubeconfig')}",
                "--leader-elect=false",
                "--port=0",
                "--bind-address=127.0.0.1",
                f"--secure-port={port}",
                f"--cert-dir={self._file(who)}",
                *options,
            )

    def _run(self, program: str, *arguments: str) -> None:
        name = Path(program).name
        with self._file(f"{name}.log").open("ab") as log:
            self._processes[name] = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", program, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.directory,
                env={"PATH": os.defpath},
            )

    def _kill(self, name: str) -> None:
        process = self._processes.pop(name, None)
        if process is not None:
            process.kill()
            process.wait()

    def _until_ready(self) -> None:
        deadline, tls = time.monotonic() + _READY_S, self.admin_tls()
        while time.monotonic() < deadline and self._processes[_API].poll() is None:
            with contextlib.suppress(OSError), urlopen(f"{self.url}/readyz", context=tls):
                return
            time.sleep(0.1)
        raise TimeoutError(f"the API server does not get ready: {self.log()[-3000:]}")

    def _file(self, name: str) -> Path:
        return self.directory / name

    def _write(self, name: str, content: str) -> Path:
        path = self._file(name)
        path.touch(0o600)
        path.write_text(content)
        return path

    def _write_identity(self, name: str, identity: Identity) -> None:
        self._write(f"{name}.pem", identity.certificate)
        self._write(f"{name}.key", identity.key)


def _by_certificate(identity: Identity) -> dict[str, str]:
    return {
        "client-certificate-data": base64.b64encode(identity.certificate.encode()).decode(),
        "client-key-data": base64.b64encode(identity.key.encode()).decode(),
    }
