"""The interpreter of a session, without the engine: tests/e2e/interpreter/driver.py runs in a sandbox, makes itself a zygote with hutch's own files,
and says what the engine would say; checks.py beside it has what is looked at. One sandbox serves all."""
import ast
import json
import os
import shutil

import pytest

import support

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "interpreter")
PYTHON = os.path.join(support.TREE, "rootfs", "python")
# Among the drivers, where tests/run puts it; in a build directory, beside the program.
HELPER = next((path for path in (os.path.join(support.PROGRAMS, "helper.so"), os.path.join(os.path.dirname(support.HUTCH), "rootfs", "helper.so"))
               if os.path.exists(path)), None)

with open(os.path.join(HERE, "checks.py"), encoding="utf-8") as file:
    NAMES = [node.name for node in ast.parse(file.read()).body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")]


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    assert HELPER, "rootfs/helper.so is not built (make all)"
    inside = tmp_path_factory.mktemp("interpreter")
    inside.chmod(0o755)
    shutil.copytree(os.path.join(PYTHON, "zygote"), inside / "zygote", ignore=shutil.ignore_patterns("__pycache__"))
    for path in (HELPER, os.path.join(PYTHON, "hutch_report.py")):
        shutil.copy(path, inside / "zygote")
    shutil.copy(os.path.join(HERE, "driver.py"), inside)
    done = support.hutch("run", "--image", "python", "--memory", "2g", "--timeout", "280s", "-v", "%s:/interpreter:ro" % inside,
                         os.path.join(HERE, "checks.py"), timeout=300)
    lines = [json.loads(line) for line in done.stdout.decode().splitlines() if line.startswith("{")]
    assert lines, done.stderr.decode("utf-8", "replace")
    return {line["name"]: line["error"] for line in lines}


@pytest.mark.parametrize("name", NAMES)
def test_interpreter(results, name):
    assert name in results, "the checks have not come so far"
    assert results[name] is None, results[name]
