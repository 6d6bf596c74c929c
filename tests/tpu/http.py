"""HTTP on loopback for the stand-in services: JSON in, JSON or bytes out, errors in Google's form."""

from __future__ import annotations

import json
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qs, unquote

_STATUS = {
    400: "INVALID_ARGUMENT",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    409: "ALREADY_EXISTS",
    429: "RESOURCE_EXHAUSTED",
    500: "INTERNAL",
    503: "UNAVAILABLE",
}


class ApiError(Exception):
    """An answer that is an error: HTTP code and message."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


Answer = Callable[[str, str, dict[str, str], dict[str, Any]], dict[str, Any] | bytes]


def handler_for(answer_of: Answer) -> type[BaseHTTPRequestHandler]:
    """A request handler that asks `answer_of(method, path, query, body)`."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = -1
        disable_nagle_algorithm = True

        def log_message(self, *_arguments: Any) -> None:
            return

        def handle_request(self) -> None:
            raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            path, _, text = self.path.partition("?")
            query = {key: values[-1] for key, values in parse_qs(text).items()}
            try:
                answer = answer_of(self.command, unquote(path), query, json.loads(raw) if raw else {})
                code = 200
            except ApiError as error:
                code = error.code
                status = _STATUS.get(error.code, "UNKNOWN")
                answer = {"error": {"code": error.code, "message": error.message, "status": status}}
            payload = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
            kind = "application/octet-stream" if isinstance(answer, bytes) else "application/json; charset=UTF-8"
            self.send_response(code)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(payload)))
            self.end_headers()
            self.wfile.write(payload)

        do_GET = do_POST = do_DELETE = do_PATCH = handle_request  # noqa: N815 - the names http.server looks for

    return Handler
