"""A Messages API on this machine that answers from a script and keeps what it was asked.

    with MessagesApi([overloaded(), policy("def generate_config(workload, environment): ...")]) as api:
        ...  # base_url=api.url, or ANTHROPIC_BASE_URL=api.url for a whole CLI
        assert api.bodies[0]["tool_choice"] == {...}

A script entry is a `Reply` or a function from the request's body to a `Reply`. When the script is used up `default`
answers; without one the server says so with a status that is never retried.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

KEY = "sk-ant-api03-THIS-KEY-MUST-NEVER-BE-STORED-0123456789"
USAGE = {"input_tokens": 1200, "output_tokens": 340, "cache_read_input_tokens": 0, "cache_creation_input_tokens": 0}


@dataclass(frozen=True)
class Reply:
    """What the server sends: a JSON body (or raw `text`), after `delay_s` seconds."""

    body: dict[str, Any] | None = None
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    text: str | None = None
    content_type: str = "application/json"
    delay_s: float = 0.0


Script = Reply | Callable[[dict[str, Any]], Reply]


class MessagesApi:
    """The server; `bodies` and `headers` hold every request in order."""

    def __init__(self, script: Iterable[Script] = (), default: Script | None = None) -> None:
        self.bodies: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.paths: list[str] = []
        self._script = list(script)
        self._default = default
        self._lock = threading.Lock()
        self.released = threading.Event()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)

    @property
    def url(self) -> str:
        host, port = self._server.server_address[:2]
        return f"http://{host!s}:{port}"

    def __enter__(self) -> MessagesApi:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.released.set()
        self._server.shutdown()
        self._server.server_close()

    def answer(self, path: str, headers: dict[str, str], body: dict[str, Any]) -> Reply:
        with self._lock:
            self.paths.append(path)
            self.headers.append(headers)
            self.bodies.append(body)
            entry = self._script.pop(0) if self._script else self._default
        if entry is None:
            return error(418, "script_error", "the script is used up")
        return entry(body) if callable(entry) else entry


def message(content: list[dict[str, Any]], stop_reason: str | None, **more: Any) -> Reply:
    """A message with these content blocks."""
    body = {
        "id": "msg_01",
        "type": "message",
        "role": "assistant",
        "model": "claude-scripted",
        "content": content,
        "stop_reason": stop_reason,
        "stop_sequence": None,
        "usage": USAGE,
    }
    return Reply(body | more, headers={"request-id": "req_message"})


def policy(code: str, rationale: str = "because", tool_id: str = "toolu_01", thinking: bool = False) -> Reply:
    """An answer that calls `submit_policy`."""
    use = {"type": "tool_use", "id": tool_id, "name": "submit_policy", "input": {"code": code, "rationale": rationale}}
    first = [{"type": "thinking", "thinking": "", "signature": "sig=="}] if thinking else []
    return message([*first, use], "tool_use")


def prose(text: str = "I would rather talk about it.", stop_reason: str = "end_turn") -> Reply:
    """An answer without a tool call."""
    return message([{"type": "text", "text": text}], stop_reason)


def refusal(category: str = "frontier_llm", explanation: str = "This looks like model development.") -> Reply:
    """A refusal, which is HTTP 200."""
    details = {"type": "refusal", "category": category, "explanation": explanation}
    return message([], "refusal", stop_details=details)


def error(status: int, kind: str, text: str = "no", headers: dict[str, str] | None = None) -> Reply:
    """An error body of the API."""
    body = {"type": "error", "error": {"type": kind, "message": text}, "request_id": "req_error"}
    return Reply(body, status, {"request-id": "req_error"} | (headers or {}))


def overloaded() -> Reply:
    """HTTP 529."""
    return error(529, "overloaded_error", "Overloaded")


def html(status: int = 500) -> Reply:
    """What a proxy says in place of the API."""
    page = "<html><body><h1>Bad gateway</h1></body></html>"
    return Reply(None, status, text=page, content_type="text/html")


def _handler(api: MessagesApi) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            length = int(self.headers.get("content-length", 0))
            body = json.loads(self.rfile.read(length))
            reply = api.answer(self.path, {k.lower(): v for k, v in self.headers.items()}, body)
            if reply.delay_s and api.released.wait(reply.delay_s):
                return
            self._send(reply)

        def _send(self, reply: Reply) -> None:
            data = (reply.text if reply.text is not None else json.dumps(reply.body)).encode()
            try:
                self.send_response(reply.status)
                for name, value in ({"content-type": reply.content_type} | reply.headers).items():
                    self.send_header(name, value)
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)
            except (BrokenPipeError, ConnectionResetError):
                self.close_connection = True  # the client's timeout came first

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class names it so
            return

    return Handler
