"""The page's server: on 127.0.0.1 only, a handful of known paths, answers in JSON.

A page of another site cannot use it: requests with another Host (a name that was made to point here) or another
Origin are refused, questions must say that they are JSON (which makes a browser ask first, and there is no answer
that permits it), and nothing may be framed. The page's own policy permits its three files and nothing from elsewhere.
"""

import json
import os
import sys
import threading
import webbrowser
from collections.abc import Callable
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from time import perf_counter
from typing import Any
from urllib.parse import urlsplit

from ..estimators.base import load
from .answers import Explorer

HOST = "127.0.0.1"

LARGEST = 2**16
"""The longest question, in bytes."""

FILES = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/explorer.css": ("explorer.css", "text/css; charset=utf-8"),
    "/explorer.js": ("explorer.js", "text/javascript; charset=utf-8"),
}

HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src data:; connect-src 'self'; base-uri 'none'; "
        "form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class Server(ThreadingHTTPServer):
    """The server of one model's page; `url` is where it is.

    Parameters
    ----------
    explorer : Explorer
        What answers.
    port : int, default=0
        Of 127.0.0.1; 0: any that is free.
    """

    daemon_threads = True

    def __init__(self, explorer: Explorer, port: int = 0) -> None:
        try:
            super().__init__((HOST, port), Handler)
        except (OSError, OverflowError) as error:
            raise OSError(f"port {port} of {HOST} cannot be had ({error}): choose another, or 0 for any") from error
        page = files(__package__) / "static"
        self.pages = {path: ((page / name).read_bytes(), kind) for path, (name, kind) in FILES.items()}
        self.questions: dict[str, Callable[[Any], Any]] = {
            "/api/density": explorer.density,
            "/api/band": explorer.band,
            "/api/points": explorer.points,
        }
        self.about = explorer.about()
        self.turn = threading.Lock()  # one answer at a time: they share what is kept of the last condition

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A page that was closed before its answer came is no error."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)

    @property
    def names(self) -> tuple[str, str]:
        """The hosts that requests may be for."""
        return f"{HOST}:{self.server_port}", f"localhost:{self.server_port}"

    @property
    def url(self) -> str:
        return f"http://{self.names[0]}/"


class Handler(BaseHTTPRequestHandler):
    """One request."""

    server: Server
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "gpcde", ""
    timeout = 60  # of a connection that says nothing

    def do_GET(self) -> None:
        if self._refused():
            return
        path = urlsplit(self.path).path
        if path in self.server.pages:
            self._send(HTTPStatus.OK, *self.server.pages[path])
        elif path == "/api/model":
            self._answer(HTTPStatus.OK, self.server.about)
        else:
            self._answer(HTTPStatus.NOT_FOUND, {"error": "there is no such page"})

    def do_POST(self) -> None:
        if self._refused():
            return
        question = self.server.questions.get(self.path)
        length = self.headers.get("Content-Length", "")
        if question is None:
            return self._fail(HTTPStatus.NOT_FOUND, "there is no such question")
        if self.headers.get_content_type() != "application/json":
            return self._fail(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "a question must be application/json")
        if not length.isdecimal():
            return self._fail(HTTPStatus.LENGTH_REQUIRED, "a question must say how long it is")
        if int(length) > LARGEST:
            return self._fail(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"a question has at most {LARGEST} bytes")
        body = self.rfile.read(int(length))
        try:
            with self.server.turn:
                began = perf_counter()
                answer = question(json.loads(body))
                taken = perf_counter() - began
        except (ValueError, RecursionError) as error:
            return self._answer(HTTPStatus.BAD_REQUEST, {"error": str(error)})
        self._answer(HTTPStatus.OK, {**answer, "ms": round(1e3 * taken, 1)})

    def _refused(self) -> bool:
        """Whether the request is of another site, which is told so."""
        origin = self.headers.get("Origin")
        own = self.headers.get_all("Host", []) in [[name] for name in self.server.names]
        if own and (origin is None or origin in [f"http://{name}" for name in self.server.names]):
            return False
        self._fail(HTTPStatus.FORBIDDEN, f"this server answers its own page alone, at {self.server.url}")
        return True

    def _fail(self, status: HTTPStatus, message: str) -> None:
        """Refuse, and end the connection: what was sent with the request is left unread."""
        self.close_connection = True
        self._answer(status, {"error": message})

    def _answer(self, status: HTTPStatus, answer: Any) -> None:
        self._send(status, json.dumps(answer, allow_nan=False).encode(), "application/json")

    def _send(self, status: HTTPStatus, body: bytes, kind: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        if self.close_connection:
            self.send_header("Connection", "close")
        for name, value in HEADERS.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Requests are not worth a line."""


def serve(path: str | os.PathLike[str], data: Any = None, port: int = 0, open_browser: bool = True) -> None:
    """Show a model in the browser, until interrupted (Ctrl-C).

    The page is served on 127.0.0.1 only, and asks no other host for anything.

    Parameters
    ----------
    path : path
        A file that `save` wrote.
    data : data frame or path of a CSV file, default=None
        Rows to show beside the density, with the columns that training had.
    port : int, default=0
        The port; 0: any that is free.
    open_browser : bool, default=True
        Whether to open the page.
    """
    explorer = Explorer(load(path), data)
    with Server(explorer, port) as server:
        explorer.warm_up()
        print(f"{os.path.basename(path)} is at {server.url} (Ctrl-C ends it)", flush=True)
        if open_browser:
            webbrowser.open(server.url)
        with suppress(KeyboardInterrupt):
            server.serve_forever()
