"""hutch run with a directory: what of it is inside, which program of it runs, and what is refused."""
import json
import os
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
], ids=["__main__", "main before __main__", "package.json"])
def test_entry_by_habit(project, files, entry):
    assert out(project(files)) == entry + "\n"


@pytest.mark.parametrize("files", [
    {}, {"package.json": "{"}, {"package.json": '{"main": 1}'}, {"package.json": '{"main": "../outside.py"}'},
    {"package.json": '{"main": "/etc/passwd"}'}, {"package.json": '{"main": "lib"}', "lib/x": ""}, {"package.json": '{"main":"' + "[" * 5000},
    {"main.py": ("../outside.py",)}, {"main.py": ("/etc/passwd",)}, {"main.py": ("loop",), "loop": ("main.py",)},
], ids=["nothing", "no JSON", "a number", "leads out", "absolute", "a directory", "deep", "a link out", "an absolute link", "a loop"])
def test_no_entry(project, files, tmp_path):
    (tmp_path / "outside.py").write_text("print('outside')")
    says = refused(project({"main.py": None, **files}), code=127)
    assert "has no program" in says and "main.py" in says and "--project" in says


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
    assert "Not a directory" in refused("--project", str(tmp_path / "file"), "x.py", code=126)
    assert "is a notebook" in refused("--project", project(), "a.ipynb")
    result = json.loads(run("--json", "--project", str(tmp_path / "none"), "x.py").stdout)
    assert result["verdict"] == "setup_failed" and "look at the project" in result["message"]


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
