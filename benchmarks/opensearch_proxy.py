"""A door of TLS and a password before a node that has neither, as the security plugin of a full distribution puts one.

The certificate is signed by an authority of its own, which no system knows: both are made with the ``openssl`` command.
"""

from __future__ import annotations

import base64
import hmac
import http.client
import ssl
import subprocess
import threading
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from socket import socket
from typing import Any
from urllib.parse import urlsplit

_CERTIFICATES = """\
[req]
distinguished_name = name
[name]
[authority]
basicConstraints = critical, CA:TRUE
keyUsage = critical, keyCertSign
subjectKeyIdentifier = hash
[door]
basicConstraints = critical, CA:FALSE
keyUsage = critical, digitalSignature
extendedKeyUsage = serverAuth
subjectAltName = IP:127.0.0.1
subjectKeyIdentifier = hash
authorityKeyIdentifier = keyid
"""


class Door(ThreadingHTTPServer):
    """Passes on what brings ``user`` and ``password``; the rest gets 401. Both may be changed while it serves.

    ``authority``: the PEM file that a client must trust. ``passed`` and ``refused`` count requests.
    """

    daemon_threads = True
    block_on_close = False
    request_queue_size = 300

    def __init__(self, behind: str, user: str, password: str, folder: Path) -> None:
        self.behind, self.user, self.password = urlsplit(behind).netloc, user, password
        self.passed, self.refused, self.lock = 0, 0, threading.Lock()
        folder.mkdir(parents=True, exist_ok=True)
        self.authority, certificate, key = _certificates(folder)
        self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._tls.load_cert_chain(certificate, key)
        super().__init__(("127.0.0.1", 0), _Handler)

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.server_address[1]}"

    def get_request(self) -> tuple[socket, Any]:
        taken, address = super().get_request()
        # The handshake comes with the first read, in the thread of that connection: nobody holds up the others.
        return self._tls.wrap_socket(taken, server_side=True, do_handshake_on_connect=False), address

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that does not trust the certificate goes away; that is its business."""

    def lets_in(self, authorization: str | None) -> bool:
        expected = "Basic " + base64.b64encode(f"{self.user}:{self.password}".encode()).decode()
        right = hmac.compare_digest(expected, authorization or "")
        with self.lock:
            self.passed += right
            self.refused += not right
        return right


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Door

    def answer(self) -> None:
        sent = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.server.lets_in(self.headers.get("Authorization")):
            status, kind, data = self._ask_behind(sent)
        else:
            status, kind, data = 401, "text/plain", b"Unauthorized"
        self.send_response(status)
        if status == 401:
            self.send_header("WWW-Authenticate", 'Basic realm="OpenSearch Security"')
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    do_GET = do_POST = do_PUT = do_DELETE = do_HEAD = answer

    def _ask_behind(self, sent: bytes) -> tuple[int, str, bytes]:
        behind = http.client.HTTPConnection(self.server.behind, timeout=120)
        try:
            headers = {"Content-Type": self.headers.get("Content-Type", "application/json")}
            behind.request(self.command, self.path, sent or None, headers)
            answer = behind.getresponse()
            return answer.status, answer.headers.get("Content-Type", "application/json"), answer.read()
        except OSError as error:
            return 502, "text/plain", str(error).encode()
        finally:
            behind.close()

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def door(behind: str, user: str, password: str, folder: Path) -> Generator[Door]:
    """A door on a free port of the loopback before the node at ``behind``; ``folder`` takes the certificates.

    Raises FileNotFoundError without ``openssl``, CalledProcessError where it fails.
    """
    server = Door(behind, user, password, folder)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()


def _certificates(folder: Path) -> tuple[Path, Path, Path]:
    """(the authority, the door's certificate, its key), PEM files that are good for a day."""
    config = folder / "openssl.cnf"
    config.write_text(_CERTIFICATES, encoding="ascii")

    def make(name: str, *more: str | Path) -> tuple[Path, Path]:
        certificate, key = folder / f"{name}.pem", folder / f"{name}.key"
        command = ["openssl", "req", "-x509", "-config", config, "-extensions", name, "-subj", f"/CN=futari {name}"]
        command += ["-newkey", "rsa:2048", "-nodes", "-days", "1", "-keyout", key, "-out", certificate, *more]
        subprocess.run(command, check=True, capture_output=True)
        return certificate, key

    authority, authority_key = make("authority")
    return (authority, *make("door", "-CA", authority, "-CAkey", authority_key))
