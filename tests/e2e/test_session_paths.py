"""Files anywhere in a session's sandbox: looking, listing, making, renaming, removing and opening by path inside, from the moment the
session is open; and what hostile code does to it. docs/sessions.md."""
import ctypes
import errno
import json
import os
import signal
import time

import pytest

from engine import Session, refused

READ, WRITE = os.O_RDONLY, os.O_WRONLY
NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL


@pytest.fixture(scope="module")
def alone(shell):
    """Without an interpreter; its tests make each a directory of their own."""
    with Session(shell, no_interpreter=1) as one:
        yield one


@pytest.fixture
def session(shell):
    with Session(shell, paths=1) as one:
        yield one


@pytest.fixture
def place(alone, request):
    path = "/tmp/" + request.node.name.replace("/", "_")[:60]
    alone.make_directory(path)
    return path


def pass_time(session, seconds):
    end = time.monotonic() + seconds
    session.engine.until(lambda: time.monotonic() >= end)


def sh(session, text, **fields):
    process = session.spawn(shell=text, **fields)
    return process.wait_ok()


# --------------------------------------------------------------------------------------------------
# What can be done

def test_from_the_moment_it_is_open(shell):
    """Before its first cell, and before it has a sandbox."""
    with Session(shell, paths=1) as session:
        orders = [session.path_order("make_directory", "/tmp/in/deep", parents=1),
                  session.path_order("stat", "/mnt/data"), session.path_order("list", "/")]
        assert all(order.results == 0 for order in orders)
        made, data, root = session.wait(*orders)
        assert made["ok"] and not made["existed"] and made["entries"][0]["type"] == "directory"
        assert made["entries"][0]["path"] == "/tmp/in/deep" and made["entries"][0]["mode"] == 0o755
        assert data["entries"][0]["type"] == "directory"
        assert {"usr", "tmp", "mnt", "proc"} <= {entry["path"] for entry in root["entries"]} and not root["truncated"]
        session.write_path("notes.txt", b"from outside")  # relative to the working directory
        session.write_path("/tmp/in/deep/x", b"1")
        code = "import os; print(open('/mnt/data/notes.txt').read(), os.listdir('/tmp/in/deep'), os.stat('notes.txt').st_uid == os.getuid())"
        result = session.run(code)
        assert result["json"]["outputs"][0]["text"] == "from outside ['x'] True\n"
        assert result["json"]["files"] == {"added": [], "modified": [], "deleted": [], "truncated": False, "directory": None}  # they are no cell's
        session.printed("open('/tmp/by-code', 'w').write('abc')")
        assert session.read_path("/tmp/by-code") == b"abc"


def test_stat(alone, place):
    sh(alone, f"cd {place}; printf 12345 >file; chmod 640 file; ln -s file link; ln -s nowhere dangling; mkfifo fifo; touch -d @1234.5 file")
    found = alone.stat(place + "/file")
    assert (found["type"], found["bytes"], found["mode"], found["mtime"], found["target"]) == ("file", 5, 0o640, 1234.5, None)
    assert found["path"] == place + "/file"
    uid = int(sh(alone, "id -u"))
    assert found["uid"] == uid
    link = alone.stat(place + "/link")
    assert (link["type"], link["target"]) == ("link", "file")
    followed = alone.stat(place + "/link", follow=1)
    assert (followed["type"], followed["bytes"], followed["target"]) == ("file", 5, "file")
    assert alone.stat(place + "/fifo")["type"] == "fifo" and alone.stat("/dev/null")["type"] == "device"
    assert alone.stat(place + "/dangling")["type"] == "link"
    assert alone.path_fails("stat", place + "/dangling", follow=1)[0] == errno.ENOENT
    code, message = alone.path_fails("stat", place + "/none\n\xff")
    assert code == errno.ENOENT and "none\\x0a" in message and "\n" not in message
    assert alone.path_fails("stat", place + "/file/x")[0] == errno.ENOTDIR
    assert alone.path_fails("stat", "x" * 300)[0] == errno.ENAMETOOLONG


def test_list(alone, place):
    sh(alone, f"cd {place}; mkdir -p a/b/c; touch a/1 a/b/2 a/b/c/3 .hidden; ln -s /etc a/etc; ln -s . loop")
    assert list(alone.list(place)) == [".hidden", "a", "loop"]
    assert list(alone.list(place, depth=2)) == [".hidden", "a", "a/1", "a/b", "a/etc", "loop"]
    deep = alone.list(place, depth=32)
    assert list(deep) == [".hidden", "a", "a/1", "a/b", "a/b/2", "a/b/c", "a/b/c/3", "a/etc", "loop"]
    assert (deep["a/etc"]["type"], deep["a/etc"]["target"], deep["a/b/c"]["type"]) == ("link", "/etc", "directory")
    assert list(alone.list(place + "/loop/loop/a")) == ["1", "b", "etc"]  # a link at its end is followed
    assert alone.path_fails("list", place + "/a/1")[0] == errno.ENOTDIR
    reply = alone.path_done("list", place, depth=32, max_entries=3)
    assert reply["truncated"] and len(reply["entries"]) == 3


def test_make_directory(alone, place):
    assert alone.make_directory(place + "/a")["existed"] is False
    code, message = alone.path_fails("make_directory", place + "/a")
    assert code == errno.EEXIST and message.startswith("make the directory '%s/a'" % place)
    assert alone.make_directory(place + "/a", parents=1)["existed"] is True
    assert alone.path_fails("make_directory", place + "/b/c/d")[0] == errno.ENOENT
    alone.make_directory(place + "/b//c/d/", parents=1, mode=0o700)
    assert alone.stat(place + "/b/c/d")["mode"] == 0o700 and alone.stat(place + "/b/c")["mode"] == 0o755
    alone.write_path(place + "/file", b"")
    assert alone.path_fails("make_directory", place + "/file", parents=1)[0] == errno.EEXIST
    assert alone.path_fails("make_directory", place + "/file/x/y", parents=1)[0] == errno.ENOTDIR


def test_rename(alone, place):
    alone.write_path(place + "/a", b"a")
    alone.rename(place + "/a", place + "/b")
    assert list(alone.list(place)) == ["b"]
    name = ctypes.c_char_p((place + "/x/y/c").encode())
    assert alone.path_fails("rename", place + "/b", name)[0] == errno.ENOENT
    alone.rename(place + "/b", place + "/x/y/c", parents=1)
    alone.write_path(place + "/d", b"d")
    alone.rename(place + "/x/y/c", place + "/d")  # makes room
    assert alone.read_path(place + "/d") == b"a"
    code, message = alone.path_fails("rename", place + "/d", ctypes.c_char_p(b"/mnt/data/d"))
    assert code == errno.EXDEV and "rename" in message
    assert alone.path_fails("rename", place + "/none", ctypes.c_char_p((place + "/p/q").encode()), parents=1)[0] == errno.ENOENT
    assert "p" not in alone.list(place)


def test_remove(alone, place):
    sh(alone, f"cd {place}; mkdir -p full/sub empty; touch full/sub/x file; ln -s full link; ln -s /etc full/sub/etc; mkfifo full/f")
    alone.remove(place + "/link")
    alone.remove(place + "/file")
    alone.remove(place + "/empty/")
    assert alone.path_fails("remove", place + "/full")[0] == errno.ENOTEMPTY
    alone.remove(place + "/full", tree=1)
    assert alone.list(place) == {}
    assert alone.path_fails("remove", place + "/full", tree=1)[0] == errno.ENOENT
    assert alone.stat("/etc")["type"] == "directory"
    for path in ("/", "//", ".", "..", place + "/..", place + "/."):
        assert alone.path_fails("remove", path, tree=1)[0] in (errno.EINVAL, errno.EBUSY), path


def test_remove_leaves_mounts(alone):
    """Before anything in them is touched."""
    alone.write_path("/mnt/data/kept", b"")
    for path in ("/mnt/data", "/tmp", "/proc", "/dev/null"):
        code, message = alone.path_fails("remove", path, tree=1)
        assert code == errno.EBUSY and "mounted" in message, (path, message)
    assert alone.stat("/mnt/data/kept")["type"] == "file"


def test_deep_and_wide_trees(alone, place):
    alone.spawn("python3", "-c", f"""
import os
os.chdir('{place}')
os.mkdir('wide')
for i in range(3000): open(f'wide/{{i}}', 'w').close()
for name in ['deep'] + 1200 * ['dddddddddd']:  # far beyond what a path can say
    os.mkdir(name), os.chdir(name)
""").wait_ok()
    reply = alone.path_done("list", place + "/wide", max_entries=1000)
    assert reply["truncated"] and len(reply["entries"]) == 1000
    reply = alone.path_done("list", place + "/wide")
    assert not reply["truncated"] and len(reply["entries"]) == 3000
    reply = alone.path_done("list", place + "/deep", depth=32)
    assert len(reply["entries"]) == 32 and not reply["truncated"]
    alone.remove(place + "/deep", tree=1)
    alone.remove(place + "/wide", tree=1)
    assert alone.list(place) == {}


def test_names_of_any_bytes(alone, place):
    names = ["new\nline", "\udcff\udcfe", "ü", "-rf", " ", "a" * 255, "quote'\"\\"]
    for name in names:
        alone.write_path(place + "/" + name, name.encode(errors="surrogateescape"))
    found = alone.list(place)
    assert sorted(found) == sorted(names)
    for name in names:
        assert alone.read_path(place + "/" + name) == name.encode(errors="surrogateescape")
        assert alone.stat(place + "/" + name)["path"] == place + "/" + name
        alone.remove(place + "/" + name)
    assert alone.list(place) == {}


def test_files_are_read_and_written(alone, place):
    big = os.urandom(1 << 20) * 4
    with alone.open_path(place + "/big", NEW, mode=0o600) as file:
        assert file.write(big) == len(big)
    assert alone.read_path(place + "/big") == big and alone.stat(place + "/big")["mode"] == 0o600
    assert alone.path_fails("open_path", place + "/big", ctypes.c_int(NEW))[0] == errno.EEXIST
    alone.write_path(place + "/log", b"one", NEW)
    alone.write_path(place + "/log", b" two", WRITE | os.O_APPEND)
    assert alone.read_path(place + "/log") == b"one two" and alone.stat(place + "/log")["mode"] == 0o644
    alone.write_path(place + "/log", b"3", WRITE)  # in place
    assert alone.read_path(place + "/log") == b"3ne two"
    assert alone.path_fails("open_path", place + "/d/e/f", ctypes.c_int(NEW))[0] == errno.ENOENT
    alone.write_path(place + "/d/e/f", b"f", NEW, parents=1)
    assert alone.read_path(place + "/d/e/f") == b"f"
    reply = alone.path_done("open_path", place + "/log", ctypes.c_int(READ))
    assert (reply["entries"][0]["bytes"], reply["entries"][0]["path"]) == (7, place + "/log")
    reply["file"].close()


# --------------------------------------------------------------------------------------------------
# What cannot

def test_what_is_no_file_is_not_opened(alone, place):
    sh(alone, f"cd {place}; mkfifo fifo; mkdir dir; ln -s fifo to-fifo; ln -s /proc/self/mem mem")
    for path, code in ((place + "/fifo", errno.EINVAL), (place + "/to-fifo", errno.EINVAL), (place + "/dir", errno.EISDIR),
                       ("/dev/null", errno.EINVAL), ("/dev/ptmx", errno.EINVAL),
                       ("/proc/self/status", errno.EINVAL), ("/proc/1/cmdline", errno.EINVAL), (place + "/mem", errno.EINVAL)):
        for flags in (READ, WRITE, WRITE | os.O_CREAT):
            found, message = alone.path_fails("open_path", path, ctypes.c_int(flags))
            assert found in (code, errno.EACCES, errno.ENOENT), (path, flags, message)
    assert "no regular file" in alone.path_fails("open_path", place + "/fifo", ctypes.c_int(READ))[1]
    assert "on a disk or in memory" in alone.path_fails("open_path", "/proc/self/status", ctypes.c_int(READ))[1]


def test_what_the_sandbox_may_not(alone, place):
    for name, path, args in (("open_path", "/etc/new", (ctypes.c_int(NEW),)), ("make_directory", "/usr/new", ()),
                             ("remove", "/usr/bin/env", ()), ("rename", "/etc/passwd", (ctypes.c_char_p(b"/etc/p"),)),
                             ("open_path", "/etc/passwd", (ctypes.c_int(WRITE),)), ("make_directory", "/new", ()),
                             ("open_path", "/sys/x", (ctypes.c_int(NEW),))):
        code, message = alone.path_fails(name, path, *args)
        assert code in (errno.EROFS, errno.EACCES, errno.EPERM), (name, path, message)
    assert alone.read_path("/etc/passwd")
    sh(alone, f"cd {place}; mkdir closed; touch closed/x; chmod 0 closed")
    if sh(alone, "id -u").strip() != b"0":
        assert alone.path_fails("list", place + "/closed")[0] == errno.EACCES
        assert alone.path_fails("stat", place + "/closed/x")[0] == errno.EACCES
        assert alone.path_fails("remove", place + "/closed", tree=1)[0] == errno.EACCES
        reply = alone.path_done("list", place, depth=2)
        assert reply["truncated"] and [entry["path"] for entry in reply["entries"]] == ["closed"]


def test_links_out_lead_inside(alone, place, tmp_path):
    """What a link says is looked up in the sandbox, where the host's files are not."""
    secret = tmp_path / "secret"
    secret.write_text("of the host")
    sh(alone, f"cd {place}; ln -s {secret} secret; ln -s / root; ln -s ../../../../../../etc/hostname up; ln -s /proc/1/root p1")
    assert alone.path_fails("open_path", place + "/secret", ctypes.c_int(READ))[0] in (errno.ENOENT, errno.EACCES)
    assert list(alone.list(place + "/root")) == list(alone.list("/"))
    assert alone.path_fails("stat", place + "/root" + str(secret))[0] in (errno.ENOENT, errno.EACCES)
    assert alone.path_fails("open_path", "../../../../../.." + str(secret), ctypes.c_int(READ))[0] in (errno.ENOENT, errno.EACCES)
    reply = alone.path_reply("list", place + "/p1/")
    assert not reply["ok"] or {entry["path"] for entry in reply["entries"]} == set(alone.list("/"))
    fails = alone.path_reply("open_path", place + "/p1" + str(secret), ctypes.c_int(READ))
    assert not fails["ok"]


def test_no_space(alone, place):
    with alone.open_path(place + "/full", NEW) as file:
        with pytest.raises(OSError) as caught:
            for _ in range(200):
                file.write(bytes(1 << 20))
        assert caught.value.errno == errno.ENOSPC
    alone.remove(place + "/full")
    alone.write_path(place + "/again", b"x")


def test_bad_arguments(alone, shell):
    for path in ("", "x" * 4096):
        assert "path" in refused(lambda p=path: alone.stat(p), errno.EINVAL)
    refused(lambda: alone.list("/", depth=33), errno.EINVAL)
    refused(lambda: alone.list("/", max_entries=65537), errno.EINVAL)
    refused(lambda: alone.make_directory("/tmp/x", mode=0o4755), errno.EINVAL)
    for flags in (os.O_RDWR, READ | os.O_CREAT, WRITE | os.O_EXCL, WRITE | os.O_DIRECTORY, WRITE | os.O_TMPFILE, os.O_PATH):
        refused(lambda f=flags: alone.open_path("/tmp/x", f), errno.EINVAL)
    with Session(shell) as without:
        assert "without paths" in refused(lambda: without.stat("/"), errno.EINVAL)
    with Session(shell, max_processes=1) as has:
        assert has.stat("/tmp")["type"] == "directory"
    refused(lambda: has.stat("/"), errno.ENOENT)


# --------------------------------------------------------------------------------------------------
# Life of the session

def test_many_at_a_time(alone, place):
    orders = [alone.path_order("make_directory", f"{place}/{i}") for i in range(64)]
    assert "wait already" in refused(lambda: alone.path_order("stat", "/"), errno.EAGAIN)
    assert all(reply["ok"] for reply in alone.wait(*orders))
    assert all(order.results == 1 for order in orders)
    assert len(alone.list(place)) == 64
    done = []

    def more(pending):  # a callback may order more
        done.append(pending.result["ok"])
        if len(done) < 20:
            alone.path_order("stat", place, on_reply=more)
    alone.path_order("stat", place, on_reply=more)
    alone.engine.until(lambda: len(done) == 20, what="orders from callbacks")


def test_beside_a_cell(session):
    cell = session.run_until("import time\nprint('ready', flush=True)\ntime.sleep(600)")
    session.write_path("/tmp/x", b"while it runs")
    assert session.read_path("/tmp/x") == b"while it runs" and cell.result is None
    session.interrupt()
    session.wait(cell)


def test_pause(session):
    session.run("1")
    session.pause()
    orders = [session.path_order("stat", "/tmp"), session.path_order("list", "/")]
    pass_time(session, 0.3)
    assert all(order.result is None for order in orders)
    session.resume()
    assert all(reply["ok"] for reply in session.wait(*orders))


def test_restart_and_close(session):
    session.run("1")
    session.pause()
    order = session.path_order("stat", "/tmp")
    session.restart()
    reply = session.wait(order)
    assert (reply["ok"], reply["code"]) == (False, errno.ECANCELED) and "restarted" in reply["message"]
    session.resume()
    assert session.stat("/tmp")["type"] == "directory"  # of another sandbox
    session.write_path("kept", b"1")
    session.restart()
    assert session.read_path("kept") == b"1"
    session.pause()
    order = session.path_order("stat", "/tmp")
    session.close()
    reply = session.wait(order)
    assert (reply["ok"], reply["code"], order.results) == (False, errno.ECANCELED, 1)


def test_the_interpreter_has_died(session):
    session.write_path("kept", b"1")
    assert session.run("import os; os._exit(3)")["interpreter_died"]
    assert session.read_path("kept") == b"1"  # in another sandbox


def test_checkpoints(session):
    session.printed("x = 1; open('a', 'w').write('1')")
    checkpoint = session.do("checkpoint")["id"]
    session.write_path("a", b"2")
    session.do("rollback", checkpoint)
    assert session.read_path("a") == b"1" and session.printed("print(x)") == "1\n"


def test_idle(shell):
    with Session(shell, paths=1, idle_ms=5000) as session:
        for _ in range(6):
            session.stat("/tmp")
            pass_time(session, 1)
        assert not session.ends
        session.engine.until(lambda: session.ends, what="it is idle")


# --------------------------------------------------------------------------------------------------
# Hostile code

# names() inside: {pid: what it is called}.
NAMES = """
import json, os
def names():
    found = {}
    for pid in filter(str.isdigit, os.listdir('/proc')):
        try:
            found[int(pid)] = open(f'/proc/{pid}/comm').read()
        except OSError:  # it has ended since
            pass
    return found
"""


def signal_spawner(session, number):
    """There is one."""
    pid = session.printed(NAMES + """
for pid, name in names().items():
    if name == 'hutch-spawner\\n':
        os.kill(pid, %d)
        print(pid)
""" % number)
    assert int(pid) > 1


def test_a_killed_spawner(session):
    signal_spawner(session, signal.SIGKILL)
    pass_time(session, 0.2)
    code, message = session.path_fails("stat", "/tmp")
    assert code == errno.ECANCELED and "killed" in message
    assert session.printed("print(1)") == "1\n"
    session.restart()
    assert session.stat("/tmp")["type"] == "directory"


def test_a_stopped_spawner(session):
    """Nothing waits longer than it may, and others do not notice."""
    signal_spawner(session, signal.SIGSTOP)
    orders = [session.path_order("stat", "/tmp", timeout_ms=300) for _ in range(20)]
    replies = session.wait(*orders)
    assert {reply["code"] for reply in replies} == {errno.ETIMEDOUT}
    assert session.printed("print(1)") == "1\n"


def test_a_directory_that_changes(session):
    """A tree that grows while it is removed, and entries that are swapped while they are listed."""
    session.printed("""
import os, subprocess, sys
os.makedirs('/tmp/t/a/b')
grow = '''
import os
while True:
    for i in range(50):
        for path in (f'/tmp/t/a/b/{i}', f'/tmp/t/a/{i}'):
            try: open(path, 'w').close()
            except OSError:
                try: os.makedirs('/tmp/t/a/b')
                except OSError: pass
        try:
            os.rename('/tmp/t/a/b', '/tmp/elsewhere'); os.symlink('/etc', '/tmp/t/a/b'); os.remove('/tmp/t/a/b'); os.rename('/tmp/elsewhere', '/tmp/t/a/b')
        except OSError: pass
'''
child = subprocess.Popen([sys.executable, '-c', grow])
""")
    for _ in range(20):
        reply = session.path_reply("list", "/tmp/t", depth=8)
        assert reply["ok"] or reply["code"] in (errno.ENOENT,), reply
        assert all(not entry["path"].startswith("a/b/passwd") for entry in reply["entries"])
        reply = session.path_reply("remove", "/tmp/t", tree=1, timeout_ms=1000)
        assert reply["ok"] or reply["code"] in (errno.ETIMEDOUT, errno.ENOTEMPTY, errno.ENOENT, errno.ESTALE, errno.ENOTDIR), reply
    session.printed("child.kill(); child.wait(); import shutil; shutil.rmtree('/tmp/t', ignore_errors=True)")
    assert session.stat("/etc/passwd")["type"] == "file"


def test_no_process_can_be_had(shell):
    with Session(shell, paths=1, pids=8) as session:
        session.printed("""
import os, time
children = []
while True:
    try: pid = os.fork()
    except OSError: break
    if pid == 0: time.sleep(600)
    children.append(pid)
""")
        code, message = session.path_fails("stat", "/tmp")
        assert code == errno.EAGAIN and "too many" in message
        session.printed("for pid in children: os.kill(pid, 9), os.waitpid(pid, 0)")
        assert session.stat("/tmp")["type"] == "directory"


def test_nothing_is_left(shell):
    """Neither descriptors here nor processes there."""
    with Session(shell, paths=1) as session:
        session.run(NAMES)

        def count():
            return json.loads(session.printed("print(json.dumps(sorted(names().values())))"))

        def ask():
            session.write_path("/tmp/x", b"1")
            session.path_fails("open_path", "/dev/null", ctypes.c_int(READ))
            session.list("/usr/bin", max_entries=10)

        ask()
        session.engine.until(lambda: "hutch-paths\n" not in count(), what="the end of who has answered")
        before, open_before = count(), len(os.listdir("/proc/self/fd"))
        for _ in range(50):
            ask()
        session.engine.until(lambda: count() == before, what="%r again" % (before,))
        assert len(os.listdir("/proc/self/fd")) < open_before + 100  # of 150 orders; the pools may have grown
