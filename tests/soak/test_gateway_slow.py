"""A client of `hutch serve --workers` that takes its answer slowly, for longer than a server waits for one that takes nothing."""
import concurrent.futures
import os
import socket
import time

from gateway import Server, parse

SECONDS = 66  # MHD's timeout is 60
SIZE = 8 << 20


def download(server, path):
    """A little each second, and then the rest."""
    sock = server.connect()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    sock.sendall(("GET %s HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n" % path).encode())
    data, until = b"", time.monotonic() + SECONDS
    while piece := sock.recv(8192):
        data += piece
        time.sleep(1 if time.monotonic() < until else 0)
    sock.close()
    return parse(data).body


def test_a_slow_client_of_another_worker(tmp_path):
    """Of two connections one is another worker's than the session."""
    with Server(tmp_path, "--workers", "2", image="python") as server:
        path = "/v1/sessions/" + server.ask("POST", "/v1/sessions", {}).json["id"]
        assert server.ask("POST", path + "/cells", {"code": "1"}).status == 200
        data = os.urandom(SIZE)
        assert server.ask("PUT", path + "/files/x", data, {"Content-Type": "application/octet-stream"}).status == 201
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            assert [body == data for body in pool.map(lambda _: download(server, path + "/files/x"), range(2))] == [True, True]
