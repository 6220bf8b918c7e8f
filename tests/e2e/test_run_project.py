"""hutch run with a directory: what of it is inside, which program of it runs, and what is refused."""
import json
import os
import pwd
import signal
import socket
import subprocess
import textwrap

import pytest

import support
from support import run, run_json

MAIN = "import sys, os, helper\nfrom pack import data\nprint(helper.NAME, data.read(), sys.argv[1:], os.getcwd(), sys.path[0], __name__)\n"


@pytest.fixture(autouse=True)
def sandboxes():
    support.need("userns")


@pytest.fixture
def project(tmp_path):
    """A function that makes a directory of these files; links are tuples."""
    def make(files=None, name="project"):
        top = tmp_path / name
        top.mkdir()
        for path, text in {"main.py": MAIN, "helper.py": "NAME = 'helper'\n", "pack/__init__.py": "", "pack/text": "packed",
                           "pack/data.py": "import pkgutil\ndef read(): return pkgutil.get_data('pack', 'text').decode()\n",
                           "pack/__main__.py": "import sys\nprint('module', sys.argv[1:], __package__)\n", **(files or {})}.items():
            if text is None:
                continue
            (top / path).parent.mkdir(parents=True, exist_ok=True)
            if isinstance(text, tuple):
                (top / path).symlink_to(text[0])
            else:
                (top / path).write_text(textwrap.dedent(text))
        return str(top)
    return make


def contents(top):
    return sorted((os.path.relpath(os.path.join(where, name), top), os.lstat(os.path.join(where, name)).st_mtime_ns)
                  for where, folders, names in os.walk(top) for name in folders + names)


def out(*words):
    done = run(*words)
    assert done.returncode == 0, done.stderr
    return done.stdout.decode()


def refused(*words, code=125):
    done = run(*words)
    assert done.returncode == code and done.stdout == b"", (done.returncode, done.stdout, done.stderr)
    return support.sentence(done)


WHOLE = "helper packed ['a', '--json'] /mnt/project /mnt/project __main__\n"


def test_a_directory_is_run(project):
    top = project()
    before = contents(top)
    assert out(top, "a", "--json") == WHOLE
    assert out("--project", top, "main.py", "a", "--json") == WHOLE
    assert out("--project", top + "/", "./main.py") == WHOLE.replace("['a', '--json']", "[]")
    result = run_json(top)
    assert (result["verdict"], result["files"]["added"]) == ("ok", [])
    assert contents(top) == before, "nothing was written, no byte code either"


def test_where_one_is(project):
    top = project({"sub/main.py": "import os, sys; print(os.getcwd(), sys.path[0], sorted(os.listdir('.')))"})
    assert out(os.path.join(top, "sub")) == "/mnt/project /mnt/project ['main.py']\n"
    assert out("--project", top, "sub/main.py").startswith("/mnt/project /mnt/project/sub ")
    assert out("--workdir", "/tmp", "--project", top, "sub/main.py") == "/tmp /mnt/project/sub []\n"
    here = subprocess.run([support.HUTCH, "run", "--image", support.IMAGE, "."], cwd=top, capture_output=True, check=False, timeout=60)
    assert here.stdout.startswith(b"helper packed"), here.stderr


def test_modules_texts_and_standard_input(project):
    top = project()
    assert out("--project", top, "-m", "pack", "x") == "module ['x'] pack\n"
    assert out("--project", top, "-c", "import helper; print(helper.NAME)") == "helper\n"
    done = run("--project", top, "-", stdin=b"import helper; print(helper.NAME)")
    assert done.stdout == b"helper\n", done.stderr
    assert "usage" in out("-m", "json.tool", "--", "--help")


@pytest.mark.parametrize("files, entry", [
    ({"main.py": None, "__main__.py": "print('__main__')"}, "__main__"),
    ({"__main__.py": "print('__main__')", "main.py": "print('main')"}, "main"),
    ({"main.py": None, "package.json": '{"main": "./lib/start.py"}', "lib/start.py": "print('start')", "index.js": ""}, "start"),
    ({"main.py": None, "main.sh": "echo sh", "main.pl": "print 'perl'"}, "sh"),
    ({"main.py": None, "main.pl": "print \"perl\\n\"", "main.txt": ""}, "perl"),
], ids=["__main__", "main before __main__", "package.json", "main of the language that comes first", "main of another language"])
def test_entry_by_habit(project, files, entry):
    assert out(project(files)) == entry + "\n"


@pytest.mark.parametrize("files", [{}, {"package.json": "{"}, {"package.json": '{"main": 1}'}, {"package.json": '{"main":"' + "[" * 5000}],
                         ids=["nothing", "no JSON", "a number", "deep"])
def test_no_entry(project, files):
    says = refused(project({"main.py": None, **files}), code=127)
    assert "has no program" in says and "main.py" in says and "--project" in says


@pytest.mark.parametrize("files, reason", [
    ({"package.json": '{"main": "../outside.py"}'}, "the program '../outside.py' is not in the project"),
    ({"package.json": '{"main": "/etc/passwd"}'}, "the program '/etc/passwd' is not in the project"),
    ({"package.json": '{"main": "lib"}', "lib/x": ""}, "open the program 'lib'"),
    ({"main.py": ("../outside.py",)}, "the program 'main.py' is not in the project"),
    ({"main.py": ("/etc/passwd",)}, "the program 'main.py' is not in the project"),
    ({"main.py": ("loop",), "loop": ("main.py",)}, "Too many levels of symbolic links"),
    ({"main.py/x": ""}, "open the program 'main.py'"),
], ids=["leads out", "absolute", "a directory", "a link out", "an absolute link", "a loop", "main.py is a directory"])
def test_entry_that_cannot_be(project, files, reason, tmp_path):
    """It is not passed over in silence for another."""
    (tmp_path / "outside.py").write_text("print('outside')")
    assert reason in refused(project({"main.py": None, "index.js": "", **files}), code=126)


@pytest.mark.parametrize("name, code, says", [
    ("none.py", 127, "open the program 'none.py' of the project"),
    ("pack", 126, "Is a directory"),
    ("../outside.py", 126, "is not in the project"),
    ("/etc/hostname", 126, "is not in the project"),
    ("out.py", 126, "is not in the project"),
    ("fifo.py", 126, "Invalid argument"),
], ids=["missing", "a directory", "above", "absolute", "a link out", "a FIFO"])
def test_programs_that_are_none(project, tmp_path, name, code, says):
    (tmp_path / "outside.py").write_text("print('outside')")
    top = project({"out.py": ("../outside.py",)})
    os.mkfifo(os.path.join(top, "fifo.py"))
    assert says in refused("--project", top, name, code=code)


def test_links_within_and_out(project, tmp_path):
    """Those that stay in it are followed; what lies outside is not there."""
    (tmp_path / "secret").write_text("secret")
    top = project({"start.py": ("main.py",), "leak": ("../secret",), "leak2": (str(tmp_path / "secret"),), "main.py": """
        import os
        for name in ("leak", "leak2", "../secret"):
            print(os.path.exists(name))
    """})
    assert out("--project", top, "start.py") == "False\nFalse\nFalse\n"


def test_it_is_read_only(project):
    top = project({"main.py": """
        import os
        for attempt in (lambda: open("new", "w"), lambda: open("helper.py", "a"), lambda: os.remove("helper.py"), lambda: os.chmod("helper.py", 0),
                        lambda: os.rename("helper.py", "x"), lambda: os.mkdir("d"), lambda: os.utime("helper.py"), lambda: os.truncate("helper.py", 0)):
            try: attempt(); print("done")
            except OSError as error: print(error.errno)
    """})
    before = contents(top)
    assert out(top).split() == ["30"] * 8
    assert contents(top) == before


@pytest.mark.parametrize("ending, text, says", [
    ("sh", "echo $0 $1", "/mnt/project/run.sh a\n"), ("bash", "echo ${BASH_VERSION:+bash} $1", "bash a\n"),
], ids=["sh", "bash"])
def test_other_languages(project, ending, text, says):
    top = project({"run." + ending: text, "run": text})
    assert out("--project", top, "run." + ending, "a") == says
    assert out("--language", ending, "--project", top, "run", "a") == says.replace("run.", "run").replace("run" + ending, "run")
    assert "/mnt/project/main.py" in out("--project", project({"main.py": "print(__file__)"}, "other"), "main.py")


def test_places_that_have_too_much(project, tmp_path):
    home = os.path.expanduser("~")
    for place in (home, os.path.dirname(os.path.realpath(home)) or "/", "/"):
        assert "home directory" in refused(place)
    top = project({"store/images/x": ""})
    done = run(top, env={**os.environ, "HUTCH_HOME": top + "/store"})
    assert done.returncode == 125 and "hutch's own files" in support.sentence(done)


@pytest.mark.parametrize("words, says", [
    (("--warm",), "option '--warm'"), (("--rich",), "option '--rich'"), (("--llm",), "option '--llm'"),
    (("-m", "pack", "-c", "1"), "options '-m' and '-c'"), (("-m", "pack", "--language", "sh"), "option '-m' is for Python"),
    (("-v", "/usr:/mnt/project:ro"), "'/mnt/project' is where the project is"),
], ids=["warm", "rich", "llm", "module and text", "module and language", "another mount"])
def test_what_does_not_go_together(project, words, says):
    assert says in refused(*words, "--project", project(), *([] if "-m" in words else ["main.py"]))


def test_other_refusals(project, tmp_path):
    assert "look at the project" in refused("--project", str(tmp_path / "none"), "x.py", code=127)
    (tmp_path / "file").write_text("")
    assert "is no directory (a program by itself is run by: hutch run " in refused("--project", str(tmp_path / "file"), "x.py", code=126)
    assert "is a notebook" in refused("--project", project(), "a.ipynb")
    result = json.loads(run("--json", "--project", str(tmp_path / "none"), "x.py").stdout)
    assert result["verdict"] == "setup_failed" and "look at the project" in result["message"]


LISTING = """
    import os
    print(sorted(os.path.relpath(os.path.join(where, name)) for where, folders, names in os.walk(".") for name in folders + names))
"""
CHANGING = """
    import os
    open("new", "w").write("x"); open("sub/old", "a").write("y"); os.remove("gone"); os.symlink("/etc/passwd", "link")
    os.mkdir("d"); open("d/deep", "w").close(); open("/mnt/data/out", "w").close()
    print(open("sub/old").read(), os.getcwd())
"""


@pytest.mark.parametrize("ignore, gone", [
    ("*.pem\n", {"k.pem", "sub/k2.pem"}),
    ("sub/\n# k.pem\n", {"sub", "sub/k2.pem", "sub/old"}),
    ("/k.pem\r\nsub/k*\r\n", {"k.pem", "sub/k2.pem"}),
    ("\xef\xbb\xbfk.pem", {"k.pem"}),
    (".hutchignore\nnone\n*.txt", set()),
    ("# nothing\n\n", set()),
], ids=["a glob", "a directory", "paths", "a byte order mark", "itself", "nothing"])
def test_what_is_held_back(project, ignore, gone):
    files = {"main.py": LISTING, "k.pem": "secret", "sub/k2.pem": "secret", "sub/old": "old"}
    top = project(files)
    with open(os.path.join(top, ".hutchignore"), "wb") as file:
        file.write(ignore.encode("latin-1"))
    everything = {name for name, _ in contents(top)}
    before = contents(top)
    for words in ([], ["--writable"]):
        assert out(*words, top) == "%s\n" % sorted(everything - gone - {".hutchignore"})
    assert contents(top) == before


def test_the_copy_is_as_the_project(project):
    """Modes, times, links within it and hard links; read-only all the same."""
    top = project({"start.py": ("main.py",), "secret": "", ".hutchignore": "secret", "main.py": """
        import os
        for name in ("a", "b", "x.sh"):
            st = os.stat(name); print(name, oct(st.st_mode), st.st_mtime_ns, st.st_nlink, st.st_uid == os.getuid())
        print(os.readlink("start.py"), os.stat("a").st_ino == os.stat("b").st_ino, sorted(os.listdir(".")))
        try: open("new", "w")
        except OSError as error: print(error.errno)
    """, "a": "a", "x.sh": "exit 0"})
    os.link(os.path.join(top, "a"), os.path.join(top, "b"))
    os.chmod(os.path.join(top, "x.sh"), 0o750)
    os.utime(os.path.join(top, "x.sh"), ns=(10**18, 10**18 + 7))
    printed = out("--project", top, "start.py").splitlines()
    assert printed[0].split()[1:2] + printed[0].split()[3:] == [oct(os.stat(os.path.join(top, "a")).st_mode), "2", "True"]
    assert printed[2] == "x.sh %s %d 1 True" % (oct(0o100750), 10**18 + 7)
    assert printed[3] == "main.py True %s" % sorted(set(os.listdir(top)) - {"secret", ".hutchignore"})
    assert printed[4] == "30"


def test_a_copy_to_write_to(project):
    top = project({"main.py": CHANGING, "sub/old": "old", "gone": "gone"})
    before = contents(top)
    result = run_json("--writable", top)
    assert result["stdout"] == "oldy /mnt/project\n", result["stderr"]
    changed = {kind: [file["path"] for file in result["project"][kind]] for kind in ("added", "modified", "deleted")}
    assert changed == {"added": ["d/deep", "link", "new"], "modified": ["sub/old"], "deleted": ["gone"]}
    assert [file["path"] for file in result["files"]["added"]] == ["out"]
    assert contents(top) == before
    support.remove_tree(result["files"]["directory"])
    assert "project" not in run_json(project({"main.py": "pass"}, "plain"))
    result = run_json("--writable", project({"main.py": "pass"}, "idle"))
    assert result["project"] == {"added": [], "modified": [], "deleted": [], "truncated": False}


def test_it_is_told_without_json(project):
    top = project({"main.py": "open('new', 'w').close()"})
    says = "hutch: the program has changed its copy of the project, which is not kept: 1 added, 0 modified, 0 deleted (--json tells which)\n"
    assert run("--writable", top).stderr.decode() == says
    assert run("--writable", "-q", top).stderr == b""
    assert run("--writable", project({"main.py": "pass"}, "idle")).stderr == b""


def test_modules_and_texts_of_a_copy(project):
    top = project({".hutchignore": "secret", "secret": ""})
    assert out("--project", top, "-m", "pack", "x") == "module ['x'] pack\n"
    assert out("--writable", "--project", top, "-c", "import helper, os; print(helper.NAME, os.path.exists('secret'))") == "helper False\n"
    assert run("--project", top, "-", stdin=b"import os; print(os.path.exists('secret'))").stdout == b"False\n"


def test_own_data_with_a_copy(project, policy, tmp_path):
    """The data directory of the caller's, and one on the disk: the copy takes its namespaces by itself."""
    (tmp_path / "data").mkdir(mode=0o777)
    os.chmod(tmp_path / "data", 0o777)
    top = project({"main.py": "open('new', 'w').close(); open('/mnt/data/out', 'w').close()"})
    result = run_json("--writable", "--data", str(tmp_path / "data"), top)
    assert [file["path"] for file in result["project"]["added"]] == ["new"], result
    assert os.listdir(tmp_path / "data") == ["out"]
    result = run_json("--writable", "--policy", policy(data_place="disk"), top)
    assert [file["path"] for file in result["project"]["added"]] == ["new"], result
    support.remove_tree(result["files"]["directory"])


def test_the_copy_is_bounded(project, policy):
    """By the kernel, whatever the program does; and by a sentence where the project itself is too large."""
    write = "import os\ntry:\n    with open('new', 'wb') as file:\n        for _ in range(64): file.write(bytes(1 << 20))\n" \
            "except OSError as error: print(error.errno)\n"
    top = project({"main.py": write})
    assert out("--writable", "--policy", policy(limits={"data_size": "16M"}), top) == "28\n"
    many = project({"main.py": "import itertools\ntry:\n    for i in itertools.count(): open('f%d' % i, 'w').close()\n"
                               "except OSError as error: print(error.errno, i < 100)"}, "many")
    assert out("--writable", "--policy", policy(limits={"data_files": 100}), many) == "28 True\n"
    says = refused("--writable", "--policy", policy(limits={"data_size": "4K"}), project({"large": "x" * 10000}, "large"))
    assert "too large to be copied" in says and ".hutchignore" in says
    assert "too large" in refused("--writable", "--policy", policy(limits={"data_files": 3}), top)
    deep = project({"/".join(["d"] * 210) + "/x": ""}, "deep")
    assert "too large" in refused("--writable", deep)
    with open(os.path.join(deep, ".hutchignore"), "w", encoding="utf-8") as file:
        file.write("d\n")
    assert out(deep, "a").startswith("helper packed ['a']")
    with open(os.path.join(top, "sparse"), "wb") as file:
        file.truncate(1 << 40)  # which has no contents
    assert "28" in out("--writable", "--policy", policy(limits={"data_size": "16M"}), top)


@pytest.mark.parametrize("files, words, code, says", [
    ({".hutchignore": "a\n!b"}, [], 125, "line 2 of .hutchignore, '!b'"),
    ({".hutchignore": "[ab]"}, [], 125, "of patterns there are '*' and '?'"),
    ({".hutchignore": "x" * 70000}, [], 125, ".hutchignore"),
    ({".hutchignore": ("../outside.py",)}, [], 125, "read .hutchignore of the project"),
    ({".hutchignore": ("nowhere",)}, [], 125, "read .hutchignore of the project"),
    ({".hutchignore/x": ""}, [], 125, "read .hutchignore of the project"),
    ({".hutchignore": "*.py"}, [], 126, "the program 'main.py' is held back by .hutchignore"),
    ({".hutchignore": "*.py"}, ["main.py"], 126, "the program 'main.py' is held back by .hutchignore"),
    ({".hutchignore": "src/", "src/app.py": "", "main.py": ("src/app.py",)}, ["main.py"], 125, "is held back"),
], ids=["back", "a class", "large", "a link out", "a link to nothing", "a directory", "no entry", "the program", "behind a link"])
def test_an_ignore_file_that_is_wrong(project, tmp_path, files, words, code, says):
    """Nothing is shown when it is not clear what is to be hidden."""
    (tmp_path / "outside.py").write_text("x")
    top = project(files)
    assert says in refused(*(["--project", top, *words] if words else [top]), code=code)


def test_writable_needs_a_project(tmp_path):
    (tmp_path / "x.py").write_text("")
    assert "option '--writable' is for a project" in refused("--writable", str(tmp_path / "x.py"))
    assert "option '--writable' is for a project" in refused("--writable", "-m", "json.tool")


def test_what_is_copied_all_the_same(project):
    """A FIFO, of whose writer nobody is waited for, and a file of the caller's that nobody may read, inside neither."""
    top = project({"closed": "", "main.py": "import os, stat\nprint(stat.S_ISFIFO(os.stat('fifo').st_mode), os.access('closed', os.R_OK))"})
    os.mkfifo(os.path.join(top, "fifo"))
    os.chmod(os.path.join(top, "closed"), 0)
    assert out("--writable", top) == "True False\n"


def test_a_script_that_hutch_runs(tmp_path):
    """Its first line has been obeyed outside, and is not obeyed again."""
    hutch = os.path.realpath(support.HUTCH)
    for line in ("#!/usr/bin/env -S %s run --image %s -q" % (hutch, support.IMAGE), "#!/usr/bin/env -S hutch run --image %s" % support.IMAGE):
        script = tmp_path / "script"
        script.write_text(line + "\nimport sys; print('inside', sys.argv[1:])\n")
        script.chmod(0o755)
        environment = {**os.environ, "PATH": os.path.dirname(hutch) + ":" + os.environ["PATH"]}
        done = subprocess.run([str(script), "a"], capture_output=True, check=False, timeout=60, env=environment)
        assert done.stdout == b"inside ['a']\n", done.stderr
    script.write_text("#!/bin/sh\n# hutch run\necho shell\n")
    assert out(str(script)) == "shell\n"


def test_home_is_home_whatever_the_environment_says(tmp_path):
    """Without HOME, or with another, the user database tells."""
    home = pwd.getpwuid(os.geteuid()).pw_dir
    if not os.path.isdir(home):
        pytest.skip("this user has no home directory")
    for value in ("", str(tmp_path)):
        done = support.hutch("run", "--project", home, "-c", "1", env={"HOME": value, "HUTCH_HOME": str(tmp_path / "store")})
        assert done.returncode == 125 and "is or holds your home directory" in support.sentence(done)


def test_writable_is_not_for_notebooks(tmp_path):
    (tmp_path / "a.ipynb").write_text('{"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}')
    assert "option '--writable'" in refused("--writable", str(tmp_path / "a.ipynb"))


def test_a_socket_is_no_way_out(project):
    """A program outside listens in the project: a mount that is only read would not keep the code from it."""
    top = project({"main.py": """
        import os, socket
        print(sorted(os.listdir(".")))
    """, "deep/er/x": ""})
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(os.path.join(top, "deep/er/app.sock"))
        assert "has the socket 'deep/er/app.sock'" in refused(top)
        with open(os.path.join(top, ".hutchignore"), "w", encoding="ascii") as file:
            file.write("*.sock\n")
        assert out(top) == "['deep', 'helper.py', 'main.py', 'pack']\n"
        assert out("--writable", top) == "['deep', 'helper.py', 'main.py', 'pack']\n"


@pytest.mark.skipif(os.geteuid() == 0, reason="root looks into every directory")
@pytest.mark.parametrize("mode", [0o311, 0o444, 0o000])
def test_what_cannot_be_looked_through(project, mode):
    """The code could connect to a name that it knows, in a directory that cannot be listed."""
    top = project({"closed/x": ""})
    os.chmod(os.path.join(top, "closed"), mode)
    try:
        said = refused(top)
    finally:
        os.chmod(os.path.join(top, "closed"), 0o755)
    assert "has 'closed" in said and "cannot be looked through for sockets" in said and "Permission denied" in said


def test_what_is_mounted_in_a_project(project):
    """A mount of the project would have it, too."""
    top = project({"other/x": "", "main.py": "import os; print(sorted(os.listdir('other')))"})
    assert out(top) == "['x']\n"
    done = subprocess.run(["unshare", "--user", "--map-current-user", "--keep-caps", "--mount", "sh", "-c",
                           'mount -t tmpfs none "$1/other" && exec "$2" run --image "$3" "$1"', "sh", top, support.HUTCH, support.IMAGE],
                          capture_output=True, timeout=60, check=False)
    assert done.returncode == 125 and done.stdout == b"", done
    assert "has 'other', which cannot be looked through for sockets, as another file system begins there" in support.sentence(done)


def test_a_copy_can_be_interrupted(project):
    """Patterns that take long to look for."""
    top = project({"main.py": "", ".hutchignore": "".join("*%s%db\n" % ("a" * 200, i) for i in range(1000))})
    for i in range(3000):
        with open(os.path.join(top, "a" * 200 + str(i)), "w", encoding="ascii"):
            pass
    with subprocess.Popen([support.HUTCH, "run", "--image", support.IMAGE, top], stderr=subprocess.PIPE) as process:
        try:
            process.wait(2)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)
        try:
            process.wait(20)
        finally:
            process.kill()
