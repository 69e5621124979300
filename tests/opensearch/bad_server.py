"""A small HTTP server that answers to order, or stands before a real node and answers now and then in its place."""

from __future__ import annotations

import json
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from corpus_index.backends.opensearch_client import Address

# Number and path of a request -> status, body, seconds of delay; None: what the node behind says.
Script = Callable[[int, str], tuple[int, object, float] | None]


class Server(ThreadingHTTPServer):
    """Counts its requests; ``most`` is how many were in work at once, ``seen`` what they asked."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 300

    def __init__(self, script: Script, behind: str) -> None:
        self.script, self.behind = script, behind
        self.count, self.busy, self.most, self.lock = 0, 0, 0, threading.Lock()
        self.seen: list[str] = []
        super().__init__(("127.0.0.1", 0), _Handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    @property
    def address(self) -> Address:
        return Address(self.url, "mail")

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that went away is what some tests are about."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def answer(self) -> None:
        sent = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        server = self.server
        with server.lock:
            number = server.count
            server.count += 1
            server.busy += 1
            server.most = max(server.most, server.busy)
            server.seen.append(f"{self.command} {self.path} {sent.decode()} {self.headers.get('Authorization')}")
        scripted = server.script(number, self.path)
        if scripted is None:
            status, data = self.ask_behind(sent)
        else:
            status, body, delay = scripted
            data = body.encode() if isinstance(body, str) else json.dumps(body).encode()
            time.sleep(delay)
        with server.lock:
            server.busy -= 1
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    do_GET = do_POST = do_PUT = do_DELETE = do_HEAD = answer

    def ask_behind(self, sent: bytes) -> tuple[int, bytes]:
        headers = {"Content-Type": self.headers.get("Content-Type", "application/json")}
        request = urllib.request.Request(
            self.server.behind + self.path, data=sent or None, headers=headers, method=self.command
        )
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            return error.code, error.read()

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def serving(script: Script, behind: str = "") -> Iterator[Server]:
    server = Server(script, behind)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
