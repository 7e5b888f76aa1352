"""A real API server with etcd, scheduler and controllers, as processes of this machine."""

import contextlib
import os
import secrets
import signal
import socket
import ssl
import subprocess
import time
import urllib.request
from datetime import datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Final

import yaml  # type: ignore[import-untyped]
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from tests.support.cluster.programs import PROGRAMS

_READY_S: Final = 60.0
_PARTIES: Final = {
    "admin": ("admin", "system:masters"),
    "scheduler": ("system:kube-scheduler", ""),
    "controllers": ("system:kube-controller-manager", ""),
}


class ControlPlane:
    """The processes, with all that they keep in `directory`. A context manager.

    `address` is one of this machine that containers reach, too.
    """

    def __init__(self, directory: Path, address: str) -> None:
        self._directory = directory
        self.address = address
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._tokens = {name: secrets.token_hex(16) for name in _PARTIES}
        self._port, self._etcd_port, self._peer_port = (_free_port() for _ in range(3))
        self.etcd_directory = directory / "etcd"

    def __enter__(self) -> "ControlPlane":
        self._directory.mkdir(parents=True, exist_ok=True)
        self._make_keys()
        try:
            self._start_etcd()
            self.start_api_server()
            self._start_others()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes.values():
            process.send_signal(signal.SIGCONT)
            process.kill()
        for process in self._processes.values():
            process.wait()

    @property
    def url(self) -> str:
        return f"https://{self.address}:{self._port}"

    @property
    def keys(self) -> Path:
        """The directory with `server.pem` and `server.key`, for others that serve here."""
        return self._directory

    @property
    def port(self) -> int:
        return self._port

    @property
    def ca(self) -> str:
        return (self._directory / "ca.pem").read_text()

    @property
    def token(self) -> str:
        """Of somebody who may do everything."""
        return self._tokens["admin"]

    def kubeconfig(self, name: str, token: str, namespace: str = "default") -> Path:
        """A file with which commands reach the API server."""
        path = self._directory / f"{name}.kubeconfig"
        path.touch(0o600)
        path.write_text(
            yaml.safe_dump(
                {
                    "apiVersion": "v1",
                    "kind": "Config",
                    "clusters": [
                        {
                            "name": "c",
                            "cluster": {
                                "server": self.url,
                                "certificate-authority": str(self._directory / "ca.pem"),
                            },
                        }
                    ],
                    "users": [{"name": "u", "user": {"token": token}}],
                    "contexts": [
                        {
                            "name": "x",
                            "context": {"cluster": "c", "user": "u", "namespace": namespace},
                        }
                    ],
                    "current-context": "x",
                }
            )
        )
        return path

    def kill_api_server(self) -> None:
        """End it at once; `start_api_server` brings it back."""
        self._processes["kube-apiserver"].kill()
        self._processes["kube-apiserver"].wait()

    def start_api_server(self) -> None:
        """Start it; return when it is ready."""
        keys = self._directory
        self._run(
            "kube-apiserver",
            f"--etcd-servers=http://127.0.0.1:{self._etcd_port}",
            f"--secure-port={self._port}",
            "--bind-address=0.0.0.0",
            f"--advertise-address={self.address}",
            "--service-cluster-ip-range=10.96.0.0/16",
            "--authorization-mode=RBAC",
            f"--token-auth-file={keys / 'tokens.csv'}",
            f"--tls-cert-file={keys / 'server.pem'}",
            f"--tls-private-key-file={keys / 'server.key'}",
            f"--client-ca-file={keys / 'ca.pem'}",
            f"--service-account-key-file={keys / 'accounts.key'}",
            f"--service-account-signing-key-file={keys / 'accounts.key'}",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--api-audiences=https://kubernetes.default.svc,{self.url}",
            "--allow-privileged=true",
            "--profiling=false",
        )
        self._until_ready()

    def _start_etcd(self) -> None:
        client = f"http://127.0.0.1:{self._etcd_port}"
        peer = f"http://127.0.0.1:{self._peer_port}"
        self._run(
            "/usr/bin/etcd",
            *("--data-dir", str(self.etcd_directory)),
            *("--listen-client-urls", client, "--advertise-client-urls", client),
            *("--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer),
            *("--initial-cluster", f"default={peer}"),
        )

    def _start_others(self) -> None:
        scheduler = self.kubeconfig("scheduler", self._tokens["scheduler"])
        self._run(
            "kube-scheduler",
            f"--kubeconfig={scheduler}",
            "--leader-elect=false",
            "--port=0",
            f"--secure-port={_free_port()}",
            f"--cert-dir={self._directory / 'scheduler'}",
        )
        controllers = self.kubeconfig("controllers", self._tokens["controllers"])
        self._run(
            "kube-controller-manager",
            f"--kubeconfig={controllers}",
            "--leader-elect=false",
            "--use-service-account-credentials=true",
            "--port=0",
            f"--secure-port={_free_port()}",
            f"--cert-dir={self._directory / 'controllers'}",
            f"--service-account-private-key-file={self._directory / 'accounts.key'}",
            f"--root-ca-file={self._directory / 'ca.pem'}",
        )

    def _run(self, program: str, *arguments: str) -> None:
        name = Path(program).name
        path = program if program.startswith("/") else str(PROGRAMS / program)
        with (self._directory / f"{name}.log").open("ab") as log:
            self._processes[name] = subprocess.Popen(
                [path, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={"PATH": os.defpath, "GOMAXPROCS": "2"},
            )

    def _until_ready(self) -> None:
        deadline = time.monotonic() + _READY_S
        context = ssl.create_default_context(cadata=self.ca)
        request = urllib.request.Request(
            f"{self.url}/readyz", headers={"Authorization": f"Bearer {self.token}"}
        )
        while time.monotonic() < deadline:
            with (
                contextlib.suppress(OSError),
                urllib.request.urlopen(request, context=context, timeout=5) as answer,
            ):
                if answer.status == 200:
                    return
            time.sleep(0.2)
        log = (self._directory / "kube-apiserver.log").read_text()[-2000:]
        raise TimeoutError(f"the API server is not ready: {log}")

    def _make_keys(self) -> None:
        authority = rsa.generate_private_key(65537, 2048)
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test cluster")])
        own = _draft(name, name, authority).add_extension(
            x509.BasicConstraints(True, None), critical=True
        )
        ca = own.sign(authority, hashes.SHA256())
        server = rsa.generate_private_key(65537, 2048)
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "kube-apiserver")])
        names = x509.SubjectAlternativeName(
            [
                x509.DNSName("localhost"),
                x509.IPAddress(ip_address("127.0.0.1")),
                x509.IPAddress(ip_address(self.address)),
            ]
        )
        leaf = _draft(subject, name, server).add_extension(names, critical=False)
        self._write("ca.pem", ca.public_bytes(Encoding.PEM))
        self._write("server.pem", leaf.sign(authority, hashes.SHA256()).public_bytes(Encoding.PEM))
        self._write("server.key", _pem(server))
        self._write("accounts.key", _pem(rsa.generate_private_key(65537, 2048)))
        lines = [
            f'{self._tokens[party]},{user},{party},"{group}"\n'
            for party, (user, group) in _PARTIES.items()
        ]
        self._write("tokens.csv", "".join(lines).encode())

    def _write(self, name: str, content: bytes) -> None:
        path = self._directory / name
        path.touch(0o600)
        path.write_bytes(content)


def _draft(
    subject: x509.Name, issuer: x509.Name, key: rsa.RSAPrivateKey
) -> x509.CertificateBuilder:
    now = datetime.now()  # noqa: DTZ005 - X.509 has UTC only
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=2))
    )


def _pem(key: rsa.RSAPrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption())


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        return int(found.getsockname()[1])
