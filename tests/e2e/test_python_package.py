"""The Python package as files: what it needs, that it can be built and installed with what Debian has, its doctor, and that the
examples of its documentation do what they say."""
import ast
import os
import re
import shutil
import subprocess
import sys
import zipfile

import pytest

import gateway
import package
import support
import hutch
from hutch import judging

SOURCE = os.environ.get("HUTCH_TEST_SOURCE") or support.TREE
FOLDER = os.path.join(package.folder(), "hutch")
FILES = sorted(os.path.join(where, name) for where, _, names in os.walk(FOLDER) for name in names if name.endswith(".py"))
STANDARD = set(getattr(sys, "stdlib_module_names", ()))
DOCUMENTS = [os.path.join(support.TREE, "docs", "clients.md"), os.path.join(support.TREE, "clients", "python", "README.md")]


def test_oldest_python():
    """What the package says it runs on can parse it."""
    assert len(FILES) > 20
    for path in FILES:
        if os.sep + "judge" + os.sep in path:
            continue  # runs inside, with the image's Python
        with open(path, encoding="utf-8") as file:
            text = file.read()
        ast.parse(text, path, feature_version=(3, 9))
        assert "from __future__ import annotations" in text or "Optional" not in text, path


def test_nothing_but_the_standard_library():
    for path in FILES:
        with open(path, encoding="utf-8") as file:
            tree = ast.parse(file.read(), path)
        for node in ast.walk(tree):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else (
                [node.module] if isinstance(node, ast.ImportFrom) and node.level == 0 else [])
            for name in names:
                top = name.split(".")[0]
                is_optional = top == "numpy"  # evalplus' results are arrays where there is numpy; the judge knows its scalars
                assert top in STANDARD or top in ("hutch", "hutch_judge") or is_optional, "%s imports %s" % (path, name)


def test_names_are_there_and_documented():
    for name in hutch.__all__:
        assert getattr(hutch, name) is not None, name
    assert os.path.exists(os.path.join(FOLDER, "py.typed"))


def test_the_judge_is_that_of_the_batch():
    """In the tree these are links; in an installed package, copies."""
    for name in ("wire", "candidate", "remote", "judge"):
        path = os.path.join(FOLDER, "judge", name + ".py")
        assert os.path.getsize(path) > 1000 and not (os.path.islink(path) and package.folder().endswith("hutch-data/python"))
    assert compile(judging.judge_text(), "judge", "exec")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Built without a network, by what Debian's python3-pip, python3-setuptools and python3-wheel have."""
    source = os.path.join(SOURCE, "clients", "python")
    if not os.access(os.path.join(source, "pyproject.toml"), os.R_OK):
        pytest.skip("this user cannot read %s" % source)
    for module, name in (("pip", "python3-pip"), ("setuptools", "python3-setuptools"), ("wheel", "python3-wheel")):
        if subprocess.run([sys.executable, "-c", "import " + module], capture_output=True, check=False).returncode:
            pytest.skip("%s is not installed" % name)
    scratch = tmp_path_factory.mktemp("wheel")
    shutil.copytree(source, scratch / "source", ignore=shutil.ignore_patterns("__pycache__", "build", "*.egg-info"))
    done = subprocess.run([sys.executable, "-m", "pip", "wheel", "--no-index", "--no-deps", "--no-build-isolation", "--no-cache-dir", "-w",
                           str(scratch), str(scratch / "source")], capture_output=True, text=True, check=False, timeout=150,
                          env={**os.environ, "HOME": str(scratch), "PIP_DISABLE_PIP_VERSION_CHECK": "1"})
    assert done.returncode == 0, done.stdout + done.stderr
    return next(scratch.glob("*.whl"))


def test_wheel_has_all_of_it(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    installed = {os.path.join("hutch", os.path.relpath(path, FOLDER)) for path in FILES} | {"hutch/py.typed"}
    assert {name for name in names if name.startswith("hutch/")} == installed
    assert wheel.name == "hutch-%s-py3-none-any.whl" % hutch.__version__


def test_wheel_works_where_it_is_installed_and_as_a_zip(wheel, tmp_path):
    text = "import hutch, sys\nhutch.configure(image=%r, layouts=1)\nprint(hutch.__file__, hutch.run('print(6 * 7)').stdout)\n" \
           "hutch.judging.judge_text()" % support.IMAGE
    zipfile.ZipFile(wheel).extractall(tmp_path / "site")
    for place in (str(tmp_path / "site"), str(wheel)):
        done = subprocess.run([sys.executable, "-c", text.replace("import hutch, sys", "import hutch, hutch.judging")], capture_output=True, text=True,
                              check=False, timeout=150, env={**package.environment(), "PYTHONPATH": place})
        assert done.stdout.startswith(place) and done.stdout.split()[-1] == "42", done


def test_versions_agree():
    done = support.hutch("--version")
    assert done.stdout.decode().split() == ["hutch", hutch.__version__]


# --------------------------------------------------------------------------------------------------
# python -m hutch doctor

def doctor(*words, **variables):
    return subprocess.run([sys.executable, "-m", "hutch", "doctor", *words], capture_output=True, text=True, check=False, timeout=150,
                          env=package.environment(**variables))


def test_doctor():
    done = doctor()
    direct = support.hutch("doctor")
    assert done.returncode == direct.returncode
    assert done.stdout.startswith("libhutch: ") and len(done.stdout.splitlines()) == len(direct.stdout.splitlines()) + 1


def test_doctor_says_what_is_missing():
    done = doctor(HUTCH_LIBRARY="/nowhere/libhutch.so.1")
    assert done.returncode == 2 and "/nowhere/libhutch.so.1" in done.stderr and "make install" in done.stderr
    done = doctor(HUTCH_BIN="/nowhere/hutch")
    assert done.returncode == 2 and "/nowhere/hutch" in done.stderr
    done = subprocess.run([sys.executable, "-m", "hutch"], capture_output=True, text=True, check=False, env=package.environment())
    assert done.returncode == 2 and done.stderr.startswith("usage: python -m hutch doctor")


# --------------------------------------------------------------------------------------------------
# Documentation

def examples():
    """(document and number, code, what it prints or None) of each Python block that is not a fragment; those of one document
    that are fragments say so by `...`."""
    for path in DOCUMENTS:
        if not os.path.exists(path):
            continue
        with open(path, encoding="utf-8") as file:
            text = file.read()
        for number, match in enumerate(re.finditer(r"^```python\n(.*?)^```\n(?:\nprints\n\n```\n(.*?)^```)?", text, re.MULTILINE | re.DOTALL)):
            yield pytest.param(match.group(1), match.group(2), id="%s-%d" % (os.path.basename(path), number))


@pytest.fixture
def serve(tmp_path):
    """Starts a server on the socket that a client finds by itself; returns what its environment has for that."""
    started = []

    def start():
        if support.hutch("serve", "--help").returncode:
            pytest.skip("this build has no `hutch serve`")
        variables = {"XDG_RUNTIME_DIR": str(tmp_path)}
        started.append(subprocess.Popen([support.HUTCH, "serve", "--image", "python", "--config", gateway.little_config("python")],
                                        stdin=subprocess.DEVNULL, stderr=subprocess.PIPE,
                                        text=True, env={**os.environ, **variables}))
        assert any('"ready"' in line for line in started[0].stderr), "hutch serve did not get ready"
        return variables
    yield start
    for process in started:
        process.kill()
        process.wait()


@pytest.mark.parametrize("code,prints", list(examples()))
def test_examples_of_the_documentation(code, prints, tmp_path, serve):
    """As they stand, with the default options, but for the number of layouts."""
    more = serve() if "Client(" in code else {}
    (tmp_path / "cities.csv").write_text("city,people\nOslo,700000\nLima,10000000\n")
    (tmp_path / "example.py").write_text(code)
    (tmp_path / "sitecustomize.py").write_text("import hutch, hutch.judging\nhutch.configure(layouts=1)\nhutch.judging.configure(layouts=1)\n")
    done = subprocess.run([sys.executable, "example.py"], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=150,
                          env={**package.environment(), **more, "PYTHONPATH": "%s:%s" % (tmp_path, package.folder())})
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    if prints is not None:
        assert done.stdout == prints
