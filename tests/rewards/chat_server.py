"""A stand-in for a chat endpoint, over real HTTP: it answers by script and keeps what it was asked."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True)
class Reply:
    """``cut`` promises more bytes than are sent; ``drip`` seconds lie between the body's bytes."""

    status: int = 200
    body: object = ""
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    delay: float = 0.0
    cut: bool = False
    drip: float = 0.0


def said(content: str | None, **message: object) -> Reply:
    """A whole chat completion; ``usage`` is ``(prompt tokens, completion tokens)``."""
    finish, usage = message.pop("finish_reason", "stop"), message.pop("usage", None)
    body: dict[str, object] = {"choices": [{"message": {"content": content, **message}, "finish_reason": finish}]}
    if isinstance(usage, tuple):
        body["usage"] = dict(zip(("prompt_tokens", "completion_tokens"), usage, strict=True))
    return Reply(body=body)


def called(name: str, arguments: object, content: str | None = None, **message: object) -> Reply:
    """A completion that calls a tool; ``arguments`` that are no text are written as JSON."""
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    call = {"id": "c1", "type": "function", "function": {"name": name, "arguments": text}}
    return said(content, tool_calls=[call], finish_reason="tool_calls", **message)


Script = Callable[[int, dict[str, Any]], Reply]
"""Number and body of a request -> what is answered."""


class ChatServer(ThreadingHTTPServer):
    """``asked`` are the bodies in order, ``keys`` their Authorization, ``most`` how many were in work at once."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 100

    def __init__(self, script: Script) -> None:
        self.script, self.lock = script, threading.Lock()
        self.asked: list[dict[str, Any]] = []
        self.keys: list[str | None] = []
        self.times: list[float] = []
        self.busy = self.most = 0
        super().__init__(("127.0.0.1", 0), _Handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that gave up is what some tests are about."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: ChatServer

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        server = self.server
        with server.lock:
            number = len(server.asked)
            server.asked.append(body)
            server.keys.append(self.headers.get("Authorization"))
            server.times.append(time.monotonic())
            server.busy += 1
            server.most = max(server.most, server.busy)
        try:
            self.answer(server.script(number, body))
        finally:
            with server.lock:
                server.busy -= 1

    def answer(self, reply: Reply) -> None:
        time.sleep(reply.delay)
        data = reply.body.encode() if isinstance(reply.body, str) else json.dumps(reply.body).encode()
        self.send_response(reply.status if self.path == "/v1/chat/completions" else 404)
        for name, value in reply.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data) + 50 * reply.cut))
        self.end_headers()
        for piece in [data[i : i + 1] for i in range(len(data))] if reply.drip else [data]:
            self.wfile.write(piece)
            time.sleep(reply.drip)
        self.close_connection = reply.cut

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def serving(script: Script) -> Iterator[ChatServer]:
    server = ChatServer(script)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
