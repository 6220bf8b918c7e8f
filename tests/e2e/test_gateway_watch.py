"""What changes in a directory of a session, told as it happens: docs/gateway.md, and hutch_session_watch() below it."""
import json
import socket

import pytest

import gateway
from gateway import Server
from support import open_files
from test_gateway_paths import Session


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with Server(tmp_path_factory.mktemp("gateway"), "--workers", "1") as started:  # whose descriptors are counted
        yield started


@pytest.fixture
def session(server):
    with Session(server, max_processes=8) as one:
        yield one


class Watch:
    """A client that listens."""

    def __init__(self, session, path, accept="application/x-ndjson"):
        self.connection = gateway.UnixConnection(session.server.path)
        self.connection.request("GET", "%s/watch?path=%s" % (session.at, path), headers={"Accept": accept})
        self.answer = self.connection.getresponse()

    def begun(self):
        assert self.answer.status == 200, self.answer.read()
        assert self.next() == ("watching", {})
        return self

    def next(self):
        line = self.answer.readline()
        event = json.loads(line) if line else {"event": None, "data": None}
        return event["event"], event["data"]

    def until(self, *wanted):
        """All events up to one of this kind and name."""
        seen = []
        while True:
            event, data = self.next()
            assert event is not None, seen
            seen.append((event, data.get("kind"), data.get("name")))
            if seen[-1][:len(wanted)] == wanted:
                return seen

    def close(self):
        self.connection.sock.shutdown(socket.SHUT_RDWR) if self.connection.sock else None
        self.connection.close()
        self.answer.close()


def instances(server):
    """Of inotify, that the server has."""
    return list(open_files(server.process.pid).values()).count("anon_inode:inotify")


def test_what_is_told(session):
    session.sh("mkdir /tmp/d")
    watch = Watch(session, "/tmp/d").begun()
    session.sh("cd /tmp/d; echo 1 >a; mkdir s; echo 2 >s/below; mv a b; chmod 600 b; rm b; rm s/below; rmdir s; cat /tmp/d/* 2>/dev/null; ls >/dev/null; touch last")
    seen = watch.until("change", "created", "last")
    kinds = [row[1:] for row in seen]
    for kind in (("created", "a"), ("written", "a"), ("created", "s"), ("renamed", "a"), ("created", "b"), ("attributes", "b"), ("removed", "b"), ("removed", "s")):
        assert kind in kinds, (kind, kinds)
    assert not any(name == "below" for _, name in kinds)
    watch.close()
    session.server.await_metric("hutch_http_exchanges", 1)


def test_events_as_sse(session):
    watch = Watch(session, "/tmp", "text/event-stream")
    assert watch.answer.headers["Content-Type"] == "text/event-stream"
    assert watch.answer.readline() == b"event: watching\n"
    watch.close()


def test_names_of_any_bytes(session):
    watch = Watch(session, "/mnt/data").begun()
    session.sh("touch \"$(printf 'a\\nb')\" \"$(printf '\\377')\"")
    assert watch.until("change", "created", "a\nb")
    event, data = watch.next()
    while data.get("name_base64") is None:
        event, data = watch.next()
    assert event == "change" and data["name_base64"] == "/w=="
    watch.close()


def test_two_of_one_directory_and_two_sessions(server, session):
    with Session(server, max_processes=8) as other:
        first, second, foreign = Watch(session, "/tmp").begun(), Watch(session, "/tmp").begun(), Watch(other, "/tmp").begun()
        assert instances(server) == 1
        session.sh("touch /tmp/mine")
        assert first.until("change", "created", "mine") and second.until("change", "created", "mine")
        first.close()
        server.await_metric("hutch_http_exchanges", 3)
        session.sh("touch /tmp/later")
        assert second.until("change", "created", "later")
        other.sh("touch /tmp/theirs")
        assert foreign.until("change", "created", "theirs")[0] == ("change", "created", "theirs")  # of the other session it heard nothing
        second.close()
        foreign.close()
    server.await_metric("hutch_http_exchanges", 1)
    assert instances(server) == 0


def test_its_end(server):
    with Session(server, max_processes=8) as session:
        session.sh("mkdir /tmp/d")
        gone, closed = Watch(session, "/tmp/d").begun(), Watch(session, "/tmp").begun()
        session.sh("rmdir /tmp/d")
        event, data = gone.next()
        while event == "change":
            event, data = gone.next()
        assert event == "end" and data == {"errno": 2, "message": "the directory is gone"} and gone.next() == (None, None)
    assert closed.until("end")
    closed.close()
    server.await_metric("hutch_http_exchanges", 1)


@pytest.mark.parametrize("path,status", [("/none", 404), ("/etc/passwd", 404), ("/proc", 400), ("/dev/null", 404), ("", 400), ("%00", 400), ("/proc/self/fd", 400)])
def test_what_cannot_be_watched(session, path, status):
    watch = Watch(session, path)
    assert watch.answer.status == status, watch.answer.read()
    watch.close()
    if status == 404:
        assert instances(session.server) == 0


def test_not_more_than_sixteen(server, session):
    """In one session; another's are not touched by that."""
    watches = [Watch(session, "/tmp").begun() for _ in range(16)]
    refused = Watch(session, "/tmp")
    assert refused.answer.status == 429 and b"16 directories" in refused.answer.read()
    with Session(server) as other:
        Watch(other, "/tmp").begun().close()
    for watch in watches:
        watch.close()
    server.await_metric("hutch_http_exchanges", 1)
    Watch(session, "/tmp").begun().close()


def test_a_directory_that_changes_too_fast(server, session):
    """It rests, and its client hears that changes were lost; a neighbour's are told meanwhile."""
    with Session(server, max_processes=8) as other:
        loud, quiet = Watch(session, "/tmp").begun(), Watch(other, "/tmp").begun()
        answer = server.ask("POST", session.at + "/processes", {"shell": "cd /tmp; while :; do echo 1 >a; echo 2 >b; done"})
        assert answer.status == 201
        seen = loud.until("lost")
        assert len(seen) <= 2 * 5001  # of one second, or of one that has begun and the next
        other.sh("touch /tmp/quiet")
        assert ("change", "created", "quiet") in quiet.until("change", "created", "quiet")
        loud.until("change")  # and it goes on
        loud.close()
        quiet.close()


def test_a_session_without_paths(server):
    with Session(server, no_interpreter=False) as session:
        watch = Watch(session, "/tmp")
        assert watch.answer.status == 400 and b"without paths" in watch.answer.read()


def test_a_client_that_leaves_before_it_begins(server, session):
    session.names("/")
    server.ask("POST", session.at + "/pause")
    with server.connect() as sock:
        sock.sendall(b"GET %s/watch?path=/tmp HTTP/1.1\r\nHost: localhost\r\n\r\n" % session.at.encode())
        server.await_metric("hutch_http_exchanges", 2)
    server.ask("POST", session.at + "/resume")
    server.await_metric("hutch_http_exchanges", 1)
    assert instances(server) == 0


def test_the_server_ends(tmp_path):
    with Server(tmp_path, "--drain", "1s") as server:
        session = Session(server)
        watch = Watch(session, "/tmp").begun()
    watch.close()
