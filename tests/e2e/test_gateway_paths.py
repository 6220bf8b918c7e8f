"""Files anywhere in a session over HTTP, by path inside: docs/gateway.md. What the sandbox makes of a path is tests/e2e/test_session_paths.py's."""
import os
import urllib.parse

import pytest

import gateway
from gateway import Server

MIB = 1 << 20


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with Server(tmp_path_factory.mktemp("gateway")) as started:
        yield started


class Session:
    def __init__(self, server, **options):
        self.server = server
        answer = server.ask("POST", "/v1/sessions", {"no_interpreter": True, **options})
        assert answer.status == 201, answer.body
        self.at = "/v1/sessions/" + answer.json["id"]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.server.ask("DELETE", self.at)

    def ask(self, method, what, headers=None, body=None, **query):
        words = urllib.parse.urlencode({name: str(value).lower() if isinstance(value, bool) else value for name, value in query.items()})
        return self.server.ask(method, "%s/%s?%s" % (self.at, what, words), body, headers)

    def fails(self, method, what, status, code, headers=None, body=None, **query):
        answer = self.ask(method, what, headers, body, **query)
        assert answer.status == status and answer.error["code"] == code, (answer.status, answer.body)
        return answer.error["message"]

    def put(self, path, data, **query):
        answer = self.ask("PUT", "files", {"Content-Type": "application/octet-stream"}, data, path=path, **query)
        assert answer.status == 201, answer.body
        return answer.json

    def get(self, path, headers=None):
        answer = self.ask("GET", "files", headers, path=path)
        assert answer.status in (200, 206), answer.body
        return answer

    def list(self, path, **query):
        answer = self.ask("GET", "list", path=path, **query)
        assert answer.status == 200, answer.body
        return answer.json

    def sh(self, text):
        answer = self.server.ask("POST", self.at + "/processes", {"shell": text}, {"Accept": "application/x-ndjson"})
        assert answer.status == 200 and b'"exit_code":0' in answer.body, answer.body

    def names(self, path):
        return [entry["path"] for entry in self.list(path)["entries"]]


@pytest.fixture(scope="module")
def session(server):
    with Session(server) as one:
        yield one


@pytest.fixture
def place(session, request):
    path = "/tmp/" + request.node.name.replace("/", "_")[:40]
    assert session.ask("POST", "make_directory", path=path).status == 200
    return path


# --------------------------------------------------------------------------------------------------
# What can be done

def test_all_of_it(session, place):
    assert session.put(place + "/d/e/a.txt", b"hello", mode="0640") == {"path": place + "/d/e/a.txt", "size": 5}
    entry = session.ask("GET", "stat", path=place + "/d/e/a.txt").json["entries"][0]
    assert (entry["type"], entry["size"], entry["mode"], entry["target"]) == ("file", 5, 0o640, None)
    assert session.names(place) == ["d"]
    assert [entry["path"] for entry in session.list(place, depth=3)["entries"]] == ["d", "d/e", "d/e/a.txt"]
    assert session.list(place, depth=3, max_entries=1)["truncated"]
    assert session.ask("POST", "rename", path=place + "/d/e/a.txt", to=place + "/x/b.txt", parents=True).status == 204
    answer = session.get(place + "/x/b.txt")
    assert answer.body == b"hello" and answer.headers["Content-Length"] == "5"
    assert answer.headers["Content-Type"] == "application/octet-stream" and answer.headers["Content-Disposition"] == "attachment"
    assert session.fails("DELETE", "files", 409, "conflict", path=place + "/x")
    assert session.ask("DELETE", "files", path=place + "/x", tree=True).status == 204
    assert session.ask("DELETE", "files", path=place + "/d/e").status == 204
    assert session.names(place) == ["d"]
    assert "File exists" in session.fails("POST", "make_directory", 409, "conflict", path=place + "/d")
    assert session.ask("POST", "make_directory", path=place + "/d", parents=True).json["existed"] is True


def test_paths_are_relative_to_the_working_directory(session):
    session.put("relative.txt", b"x")
    assert session.get("/mnt/data/relative.txt").body == b"x"
    listed = session.server.ask("GET", session.at + "/files")
    assert [file["path"] for file in listed.json["files"]] == ["relative.txt"]  # without a path, the list of /mnt/data
    assert session.ask("DELETE", "files", path="./relative.txt").status == 204


def test_names_of_any_bytes(session, place):
    name = place + "/ä +&%=#\n\\'\""
    session.put(name, b"1")
    assert session.get(name).body == b"1" and session.names(place) == [name.rpartition("/")[2]]
    raw = "%s/files?path=%s/%%ff%%fe" % (session.at, place)
    assert session.server.ask("PUT", raw, b"2", {"Content-Type": "x/y"}).status == 201
    assert session.server.ask("GET", raw).body == b"2"
    assert any("path_base64" in entry for entry in session.list(place)["entries"])


def test_ranges(session, place):
    session.put(place + "/f", bytes(range(200)))
    answer = session.get(place + "/f", {"Range": "bytes=10-19"})
    assert answer.status == 206 and answer.body == bytes(range(10, 20)) and answer.headers["Content-Range"] == "bytes 10-19/200"
    assert session.get(place + "/f", {"Range": "bytes=-5"}).body == bytes(range(195, 200))
    assert session.get(place + "/f", {"Range": "bytes=195-"}).body == bytes(range(195, 200))
    assert session.fails("GET", "files", 416, "range_not_satisfiable", {"Range": "bytes=200-"}, path=place + "/f")
    head = session.ask("HEAD", "files", path=place + "/f")
    assert head.status == 200 and head.headers["Content-Length"] == "200" and head.body == b""


def test_links_are_followed_where_they_are_asked_for(session, place):
    session.sh("cd %s; echo x >f; ln -s f l; ln -s nowhere dangling" % place)
    assert session.ask("GET", "stat", path=place + "/l").json["entries"][0]["type"] == "link"
    assert session.ask("GET", "stat", path=place + "/l", follow=True).json["entries"][0]["type"] == "file"
    assert session.get(place + "/l").body == b"x\n"
    assert session.ask("DELETE", "files", path=place + "/l").status == 204 and session.get(place + "/f").body == b"x\n"
    session.fails("GET", "files", 404, "not_found", path=place + "/dangling")


@pytest.mark.parametrize("size", [0, 1, 32768, 3 * MIB + 7])
@pytest.mark.parametrize("is_chunked", [False, True])
def test_sizes(session, place, size, is_chunked):
    data = os.urandom(size)
    connection = gateway.UnixConnection(session.server.path)
    pieces = (data[at:at + 70000] for at in range(0, size, 70000))
    url = "%s/files?path=%s" % (session.at, urllib.parse.quote(place + "/f"))
    connection.request("PUT", url, pieces if is_chunked else data, {"Content-Type": "x/y"}, encode_chunked=is_chunked)
    answer = connection.getresponse()
    assert answer.status == 201, answer.read()
    answer.read()
    connection.request("GET", url)  # the connection goes on
    assert connection.getresponse().read() == data
    connection.close()
    session.ask("DELETE", "files", path=place + "/f")


def test_huge(server):
    """It is not gathered: the server takes no more memory than one piece of it needs."""
    with Session(server) as session:
        before = resident(server)
        size = 48 * MIB

        def pieces():
            for _ in range(size // MIB):
                yield bytes(MIB)

        connection = gateway.UnixConnection(server.path)
        connection.request("PUT", session.at + "/files?path=/mnt/data/big", pieces(), {"Content-Type": "x/y", "Content-Length": str(size)})
        assert connection.getresponse().status == 201
        connection.close()
        assert resident(server) - before < 16 * MIB
        assert session.ask("GET", "stat", path="/mnt/data/big").json["entries"][0]["size"] == size
        answer = session.get("/mnt/data/big", {"Range": "bytes=%d-" % (size - 3)})
        assert answer.body == bytes(3)


def resident(server):
    with open("/proc/%d/statm" % server.process.pid) as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")


def test_in_a_session_with_an_interpreter(tmp_path):
    """From the moment it is open, before its first cell."""
    with Server(tmp_path, image="python") as server, Session(server, no_interpreter=False, paths=True) as session:
        session.put("/tmp/in.txt", b"early")
        answer = server.ask("POST", session.at + "/cells", {"code": "open('/tmp/out', 'w').write(open('/tmp/in.txt').read() + ', late')"})
        assert answer.json["verdict"] == "ok", answer.body
        assert session.get("/tmp/out").body == b"early, late"


def test_it_waits_in_a_pause(server):
    """An upload, too, whose body has come long before."""
    with Session(server) as session:
        session.names("/")
        assert server.ask("POST", session.at + "/pause").status == 200
        connection = gateway.UnixConnection(server.path)
        connection.request("PUT", session.at + "/files?path=/tmp/x", b"abc" * 1000, {"Content-Type": "x/y"})
        server.await_metric("hutch_http_exchanges", 2)
        assert server.ask("POST", session.at + "/resume").status == 200
        assert connection.getresponse().status == 201
        connection.close()
        assert session.get("/tmp/x").body == b"abc" * 1000


# --------------------------------------------------------------------------------------------------
# What cannot

def test_sessions_without_paths(server):
    with Session(server, no_interpreter=False) as session:
        for method, what in (("GET", "stat"), ("GET", "list"), ("POST", "make_directory"), ("GET", "files"), ("DELETE", "files")):
            assert "without paths" in session.fails(method, what, 400, "invalid_request", path="/tmp")
        assert "without paths" in session.fails("PUT", "files", 400, "invalid_request", {"Content-Type": "x/y"}, b"x" * 100, path="/tmp/x")


BAD_QUERIES = {
    "no path": ("GET", "stat", "", "the query has no path"),
    "no path for a removal": ("DELETE", "files", "", "the query has no path"),
    "no path for an upload": ("PUT", "files", "", "the query has no path"),
    "empty": ("GET", "stat", "path=", "a path is empty"),
    "too long": ("GET", "stat", "path=" + "x" * 4096, "4096 bytes"),
    "NUL": ("GET", "files", "path=/etc%00", "NUL byte"),
    "cut percent": ("GET", "stat", "path=%e", "hexadecimal"),
    "no new path": ("POST", "rename", "path=a", "the query has no to"),
    "flag": ("GET", "stat", "path=/&follow=yes", "follow is either true or false"),
    "depth 0": ("GET", "list", "path=/&depth=0", "depth is a number from 1 to 32"),
    "depth 33": ("GET", "list", "path=/&depth=33", "depth is a number"),
    "depth text": ("GET", "list", "path=/&depth=1x", "depth is a number"),
    "entries": ("GET", "list", "path=/&max_entries=65537", "max_entries is a number"),
    "mode": ("POST", "make_directory", "path=/tmp/m&mode=1777", "mode is"),
    "mode 8": ("PUT", "files", "path=/tmp/m&mode=8", "mode is"),
}


@pytest.mark.parametrize("label", BAD_QUERIES)
def test_bad_queries(session, label):
    method, what, query, message = BAD_QUERIES[label]
    body = b"x" if method == "PUT" else None
    answer = session.server.ask(method, "%s/%s?%s" % (session.at, what, query), body, {"Content-Type": "x/y"})
    assert answer.status == 400 and message in answer.error["message"], answer.body


TRAVERSALS = ["../../../../etc/passwd", "..%2f..%2f..%2fetc%2fpasswd", "%2e%2e/%2e%2e/%2e%2e/etc/passwd", "/proc/1/root/etc/passwd", "/mnt/data/../../etc/passwd",
              "/proc/self/root/etc/passwd", "//etc//passwd", "%2fetc%2fpasswd", "/proc/1/cwd/etc/passwd", "....//....//etc/passwd", "..%c0%af..%c0%afetc/passwd"]


@pytest.mark.parametrize("path", TRAVERSALS)
def test_a_path_leads_where_it_leads_inside(session, path, tmp_path):
    """To the sandbox's own file, or to none: never to the host's."""
    with open("/etc/passwd", "rb") as file:
        hosts = file.read()
    answer = session.server.ask("GET", "%s/files?path=%s" % (session.at, path))
    assert answer.status in (200, 400, 404), answer.body
    assert answer.body != hosts
    where = str(tmp_path / "secret")
    with open(where, "w") as file:
        file.write("hutch-secret")
    up = "../" * 12 + where[1:]
    assert session.ask("GET", "files", path=up).status == 404 and session.ask("GET", "stat", path=where).status == 404


@pytest.mark.parametrize("path", ["/dev/null", "/dev/zero", "/dev/tty", "/proc/self/mem", "/proc/1/environ", "/proc/kmsg", "/dev/fd/0", "/proc/self/fd/0", "/sys"])
def test_devices_and_files_that_are_none(session, path):
    for method, headers, body in (("GET", None, None), ("PUT", {"Content-Type": "x/y"}, b"x" * 100000)):
        answer = session.ask(method, "files", headers, body, path=path)
        assert answer.status in (400, 404) and answer.error["message"], answer.body
    assert session.ask("DELETE", "files", path=path).status >= 400


def test_fifos_make_nobody_wait(session, place):
    session.sh("mkfifo %s/fifo" % place)
    for method, headers, body in (("GET", None, None), ("PUT", {"Content-Type": "x/y"}, b"x")):
        assert "no regular file" in session.fails(method, "files", 400, "invalid_request", headers, body, path=place + "/fifo")


def test_what_the_sandbox_may_not(session):
    for path in ("/etc/new", "/usr/bin/new", "/new", "/proc/new"):
        answer = session.ask("PUT", "files", {"Content-Type": "x/y"}, b"x", path=path)
        assert answer.status in (400, 404), answer.body
        assert session.ask("POST", "make_directory", path=path).status in (400, 404)
    assert "mounted" in session.fails("DELETE", "files", 409, "conflict", path="/mnt/data", tree=True)
    session.fails("GET", "files", 400, "invalid_request", path="/tmp")
    session.fails("GET", "list", 404, "not_found", path="/none")


def test_a_large_upload_that_is_refused(session):
    """Before it is read, where its length is known: the answer comes, and not a reset."""
    connection = session.server.connect()
    connection.sendall(b"PUT %s/files?path=/etc/x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 900000000\r\n\r\n" % session.at.encode())
    answer = gateway.parse(gateway.read_all(connection))
    assert answer.status == 400 and answer.headers["Connection"] == "close" and "open '/etc/x'" in answer.error["message"]
    connection.close()


def test_a_full_place(server):
    with Session(server, limits={"data_bytes": MIB}) as session:
        session.fails("PUT", "files", 413, "body_too_large", {"Content-Type": "x/y"}, bytes(MIB + 100000), path="/mnt/data/x")
        gateway.await_that(lambda: session.names("/mnt/data") == [])


def test_another_session(server):
    """A foreign id, a forged one and one that has ended get the same answer."""
    with Session(server) as ended:
        pass
    for at in (ended.at, "/v1/sessions/" + "a" * 21, "/v1/sessions/x"):
        for method, what in (("GET", "stat"), ("GET", "list"), ("POST", "rename"), ("GET", "files"), ("DELETE", "files"), ("PUT", "files")):
            answer = server.ask(method, "%s/%s?path=/tmp&to=/x" % (at, what), b"x" if method == "PUT" else None, {"Content-Type": "x/y"})
            assert answer.status == 404 and answer.error["message"] == "there is no such session", answer.body


# --------------------------------------------------------------------------------------------------
# Clients that leave, and what they leave

def begin_upload(session, path, length, data):
    sock = session.server.connect()
    sock.sendall(b"PUT %s/files?path=%s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % (session.at.encode(), path.encode(), length) + data)
    return sock


def test_client_that_leaves_an_upload(session, place):
    with begin_upload(session, place + "/cut", 100000, b"x" * 5000):
        gateway.await_that(lambda: session.names(place) == ["cut"])
    gateway.await_that(lambda: session.names(place) == [])
    session.server.await_metric("hutch_http_exchanges", 1)
    session.server.await_metric("hutch_http_held_bytes", 0)


def test_client_that_leaves_before_its_file_is_open(server):
    with Session(server) as session:
        session.put("/tmp/before", b"")
        server.ask("POST", session.at + "/pause")
        gone = server.metrics()["hutch_http_gone_total"]
        for n, data in enumerate((b"", b"x" * 3000)):  # each waits for its answer, which cannot be taken back
            with begin_upload(session, "/tmp/cut", 3000, data):
                server.await_metric("hutch_http_exchanges", 2 + n)
            server.await_metric("hutch_http_gone_total", gone + 1 + n)
        with server.connect() as sock:
            sock.sendall(b"GET %s/list?path=/tmp HTTP/1.1\r\nHost: localhost\r\n\r\n" % session.at.encode())
            server.await_metric("hutch_http_exchanges", 4)
        server.ask("POST", session.at + "/resume")
        server.await_metric("hutch_http_exchanges", 1)
        gateway.await_that(lambda: session.names("/tmp") == ["before"])


def test_session_that_ends_within_an_upload(server):
    with Session(server) as session:
        sock = begin_upload(session, "/tmp/x", 100000, b"x" * 100)
        gateway.await_that(lambda: session.names("/tmp") == ["x"])
    sock.sendall(b"x" * 99900)
    assert gateway.read_answer(sock).status == 404
    sock.close()
    server.await_metric("hutch_http_exchanges", 1)


def test_server_that_ends_meanwhile(tmp_path):
    with Server(tmp_path, "--drain", "1s") as server:
        session = Session(server)
        session.names("/")
        server.ask("POST", session.at + "/pause")
        socks = [begin_upload(session, "/tmp/cut", 3000, b"x" * 100) for _ in range(3)]
        server.await_metric("hutch_http_exchanges", 4)
    for sock in socks:
        sock.close()
