"""A server on loopback, and no way to any other."""

import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest


@pytest.fixture(autouse=True)
def no_network(monkeypatch):
    """Refuse any connection that leaves this machine."""
    connect = socket.socket.connect

    def connect_to_loopback(self, address):
        if isinstance(address, tuple) and address[0] not in ("127.0.0.1", "::1"):
            raise AssertionError(f"a test wants to reach {address}")
        return connect(self, address)

    monkeypatch.setattr(socket.socket, "connect", connect_to_loopback)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


class Server:
    """Serves `content`, and misbehaves as its attributes say.

    Parameters
    ----------
    address : str
        Where it listens.
    """

    def __init__(self, address):
        self.address = address
        self.content = bytes(range(256)) * 64
        self.knows_ranges = True
        self.breaks = []  # for each request, how many bytes to send; None sends all
        self.codes = []  # for each request, an error to answer with, or None
        self.range_shift = 0  # added to the start of every range that is sent
        self.pause = 0.0  # seconds in the middle of a body
        self.length = None  # what Content-Length says instead of the truth
        self.meeting = None  # a barrier to wait at in the middle of a body
        self.ranges = []  # the Range of each request so far

    def answer(self, request):
        self.ranges.append(request.headers.get("Range"))
        code = self.codes.pop(0) if self.codes else None
        n_sent = self.breaks.pop(0) if self.breaks else None
        start = 0
        if self.knows_ranges and self.ranges[-1]:
            start = int(self.ranges[-1].removeprefix("bytes=").removesuffix("-"))
            start += self.range_shift
            if start >= len(self.content):
                code = 416
        if code is not None:
            request.send_error(code)
            return
        body = self.content[start:]
        request.send_response(206 if start else 200)
        length = str(len(body)) if self.length is None else self.length
        request.send_header("Content-Length", length)
        if start:
            last, n_all = len(self.content) - 1, len(self.content)
            request.send_header("Content-Range", f"bytes {start}-{last}/{n_all}")
        request.end_headers()
        body = body[:n_sent]
        half = len(body) // 2
        request.wfile.write(body[:half])
        request.wfile.flush()
        threading.Event().wait(self.pause)  # tests may have taken over time.sleep
        if self.meeting is not None:
            self.meeting.wait(timeout=30)
        request.wfile.write(body[half:])


@pytest.fixture
def server():
    """A server on loopback that can be told to misbehave."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            try:
                state.answer(self)
            except ConnectionError:
                pass  # the client has had enough

        def log_message(self, *args):
            pass

    listener = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    state = Server(f"http://127.0.0.1:{listener.server_port}/file")
    # Polled often, so that the tests do not wait for it to stop.
    thread = threading.Thread(target=listener.serve_forever, args=(0.01,))
    thread.start()
    yield state
    listener.shutdown()
    listener.server_close()
    thread.join()
