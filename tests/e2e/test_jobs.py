"""What hutch is for: analyses on real tables, with charts and reports coming back."""
import os
import shutil
import struct
import subprocess
import sys

import pytest

import support
from support import TREE, run, run_json

EXAMPLE = os.path.join(TREE, "examples", "accidents.py")
GENERATOR = os.path.join(TREE, "examples", "make_accidents.py")


def is_chart(path):
    """A PNG with a sensible size and more than one colour's worth of data."""
    with open(path, "rb") as file:
        head = file.read(33)
    assert head[:8] == b"\x89PNG\r\n\x1a\n" and head[12:16] == b"IHDR", head
    width, height = struct.unpack(">II", head[16:24])
    return width >= 300 and height >= 200 and os.path.getsize(path) > 5000


def check_answer(result, data):
    assert result["verdict"] == "ok", (result["message"], result["stderr"])
    assert result["error"] is None
    assert len(result["stdout"].split("\n")) > 3
    added = {entry["path"]: entry for entry in result["files"]["added"]}
    charts = [path for path, entry in added.items() if entry["mime"] == "image/png"]
    reports = [path for path in added if path.endswith((".md", ".html", ".txt"))]
    assert charts and reports, added
    assert all(is_chart(os.path.join(data, chart)) for chart in charts)


def test_example_on_its_own_data(data):
    subprocess.run([sys.executable, GENERATOR, str(data / "traffic_accidents.csv")], check=True, timeout=60)
    check_answer(run_json("--image", "python", "--timeout", "100s", "--data", str(data), EXAMPLE, image=None, timeout=120), str(data))


def test_example_on_real_data(data):
    shutil.copy(support.test_data("traffic_accidents.csv"), data / "traffic_accidents.csv")
    os.chmod(data / "traffic_accidents.csv", 0o644)
    check_answer(run_json("--image", "python", "--timeout", "100s", "--data", str(data), EXAMPLE, image=None, timeout=120), str(data))


def test_generator_is_deterministic(tmp_path):
    for name in ("a", "b"):
        subprocess.run([sys.executable, GENERATOR, str(tmp_path / name)], check=True, timeout=60)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


@pytest.mark.parametrize("code, output", [
    ("import numpy as np; print(int(np.arange(10).sum()), round(float(np.linalg.det(np.eye(3))), 3))", "45 1.0\n"),
    ("import pandas as pd; print(pd.DataFrame({'a': [1, 2, 3]})['a'].mean())", "2.0\n"),
    ("import scipy.stats as s; print(round(float(s.norm.cdf(0)), 3))", "0.5\n"),
    ("import sympy; x = sympy.symbols('x'); print(sympy.integrate(2 * x, x))", "x**2\n"),
    ("from sklearn.linear_model import LinearRegression as L; print(round(float(L().fit([[0], [1]], [0, 2]).coef_[0]), 3))", "2.0\n"),
    ("import statsmodels.api as sm; print(sm.__name__)", "statsmodels.api\n"),
    ("import requests, bs4, lxml, openpyxl, PIL, seaborn, IPython, nbformat; print('all there')", "all there\n"),
])
def test_libraries(code, output):
    done = run("--image", "python", "-c", code, image=None, timeout=120)
    assert (done.returncode, done.stdout.decode()) == (0, output), done.stderr


def test_chart_with_matplotlib(data):
    code = "import matplotlib.pyplot as plt\nplt.plot([1, 3, 2])\nplt.title('t')\nplt.savefig('chart.png')"
    result = run_json("--image", "python", "--data", str(data), "-c", code, image=None, timeout=120)
    assert result["verdict"] == "ok", result["stderr"]
    assert is_chart(str(data / "chart.png"))
    assert result["files"]["added"][0]["mime"] == "image/png"


def test_spreadsheet_round_trip(data):
    code = ("import pandas as pd\npd.DataFrame({'a': [1, 2], 'b': ['x', 'y']}).to_excel('t.xlsx', index=False)\n"
            "print(pd.read_excel('t.xlsx').to_csv(index=False))")
    result = run_json("--image", "python", "--data", str(data), "-c", code, image=None, timeout=120)
    assert result["stdout"] == "a,b\n1,x\n2,y\n\n", result["stderr"]
    assert "spreadsheet" in result["files"]["added"][0]["mime"]
