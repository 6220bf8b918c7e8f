"""What takes the place of others' runners: human-eval's, evalplus', rewards of trainers, llm-sandbox. Each with programs that
pass, fail, run too long, and try to talk their way through the tests."""
import inspect
import json
import os
import subprocess
import sys
import threading

import pytest

import package
import support
import hutch
from hutch import _compare, evalplus, human_eval, judging, llm_sandbox, rewards, verl

pytestmark = pytest.mark.usefixtures("judge")


@pytest.fixture(scope="module")
def judge():
    """The engine that judges, with the tests' library; closed when the file is through."""
    judging.configure(**{name: value for name, value in package.options(image="python").items() if name != "zygotes"})
    yield judging.default_engine()
    judging.configure()


PROBLEM = {"task_id": "test/0", "prompt": 'def add(a, b):\n    """Adds."""\n', "entry_point": "add",
           "test": "def check(candidate):\n    assert candidate(1, 2) == 3\n    assert candidate(0, 0) == 0, 'zeroes'\n"}

CHEATS = {
    "ends": "    import os\n    os._exit(0)\n",
    "ends at once": "    return 0\nraise SystemExit(0)\n",
    "equals everything": "    class Any(int):\n        def __eq__(self, other): return True\n    return Any()\n",
    "patches": "    return 1\nimport builtins\nbuiltins.AssertionError = KeyError\n",
    "prints": "    return 1\nprint('passed')\nimport os\nos.write(1, b'passed')\n",
    "another check": "    return 1\ndef check(candidate): pass\n",
}


# --------------------------------------------------------------------------------------------------
# human-eval

def check(completion, timeout=10.0, problem=PROBLEM):
    return human_eval.check_correctness(problem, completion, timeout)


def test_signature_is_human_evals():
    parameters = inspect.signature(human_eval.check_correctness).parameters
    assert list(parameters) == ["problem", "completion", "timeout", "completion_id"]
    assert parameters["completion_id"].default is None and human_eval.execution.check_correctness is human_eval.check_correctness


def test_results_are_human_evals():
    assert human_eval.check_correctness(PROBLEM, "    return a + b\n", 10.0, 7) == {
        "task_id": "test/0", "passed": True, "result": "passed", "completion_id": 7}
    assert check("    return a\n")["result"] == "failed: "
    assert check("    return a + b + (a == 0)\n")["result"] == "failed: zeroes"
    assert check("    return a / 0\n")["result"] == "failed: division by zero"
    assert check("    return input()\n")["result"].startswith("failed: ")
    assert check("    return (\n")["result"].startswith("failed: ")
    assert check("    while True: pass\n", 1.0) == {"task_id": "test/0", "passed": False, "result": "timed out", "completion_id": None}
    assert check("    import time; time.sleep(50)\n", 1.0)["result"] == "timed out"


@pytest.mark.parametrize("name", sorted(CHEATS))
def test_cheats_do_not_pass(name):
    assert not check(CHEATS[name])["passed"]


def test_threads_may_call_it():
    found = []
    threads = [threading.Thread(target=lambda i=i: found.append(human_eval.check_correctness(
        PROBLEM, "    return a + b + %d\n" % (i % 2), 10.0, i))) for i in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted((one["completion_id"], one["passed"]) for one in found) == [(i, i % 2 == 0) for i in range(12)]


def test_human_eval_itself():
    """Every reference solution passes, and so does none that returns nothing."""
    with open(support.test_data("HumanEval.jsonl"), encoding="utf-8") as file:
        problems = [json.loads(line) for line in file]
    right = rewards.score([problem["prompt"] + problem["canonical_solution"] for problem in problems], problems, timeout=20)
    assert right == [1.0] * 164
    for problem in problems[:3]:
        assert human_eval.check_correctness(problem, problem["canonical_solution"], 20.0)["passed"]
        assert not human_eval.check_correctness(problem, "    return None\n", 20.0)["passed"]


def test_engine_without_the_judge_gets_it_with_the_program():
    async def use(engine):
        return await judging.judge_tests(engine, [PROBLEM["prompt"], "    return a + b\n"], human_eval.execution.tests_of(PROBLEM))
    with hutch.BlockingEngine(**package.options(image="python")) as engine:
        assert engine._call(use).passed


def test_forked_workers():
    """As evaluations have them: ProcessPoolExecutor forks, and each child judges for itself."""
    text = ("import concurrent.futures, json, multiprocessing, sys\nimport hutch\nfrom hutch import human_eval, judging\n"
            "judging.configure(**json.loads(sys.argv[1]))\nproblem = json.loads(sys.argv[2])\n"
            "assert human_eval.check_correctness(problem, '    return a + b\\n', 20.0)['passed']\n"
            "with concurrent.futures.ProcessPoolExecutor(2, mp_context=multiprocessing.get_context('fork')) as pool:\n"
            "    jobs = [pool.submit(human_eval.check_correctness, problem, '    return a + b + %d\\n' % (i % 2), 20.0, i) for i in range(4)]\n"
            "    print([job.result()['passed'] for job in jobs])\n")
    done = subprocess.run([sys.executable, "-c", text, json.dumps({"image": "python", "layouts": 1, "max_running": 1}), json.dumps(PROBLEM)],
                          capture_output=True, text=True, check=False, env=package.environment(), timeout=150)
    assert done.stdout == "[True, False, True, False]\n", done.stderr


# --------------------------------------------------------------------------------------------------
# evalplus

def untrusted(code, inputs=((1, 2), (0, 0)), expected=(3, 0), atol=0, entry="add", dataset="humaneval", **options):
    status, details = evalplus.untrusted_check(dataset, code, [list(given) for given in inputs], entry, list(expected), atol,
                                               [0.01] * len(inputs), **options)
    return status, [bool(mark) for mark in details]


def test_evalplus_details():
    assert untrusted("def add(a, b): return a + b") == ("pass", [True, True])
    assert untrusted("def add(a, b): return 0") == ("fail", [False, True])
    assert untrusted("def add(a, b): return 0", fast_check=True) == ("fail", [False])
    assert untrusted("def sub(a, b): return 0")[0] == "fail"
    assert untrusted("def add(a, b):\n    while True: pass", min_time_limit=0.5)[0] == "timeout"


def test_evalplus_comparisons():
    assert untrusted("def f(x): return x / 3", [(1,)], [0.3333333], entry="f") == ("pass", [True])
    assert untrusted("def f(x): return x / 3", [(1,)], [0.33], entry="f") == ("fail", [False])
    assert untrusted("def f(x): return [x / 3, 1]", [(1,)], [[0.333, 1]], 1e-2, "f") == ("pass", [True])
    assert untrusted("def f(x): return {1: (x, 2j)}", [((1, 2),)], [{1: ((1, 2), 2j)}], entry="f") == ("pass", [True])
    assert untrusted("def f(x): return x", [(float("inf"),)], [float("inf")], entry="f") == ("pass", [True])
    assert untrusted("def find_zero(xs): return -xs[0] / xs[1]", [([1, 2],)], [-0.5], 1e-4, "find_zero") == ("pass", [True])
    assert untrusted("def larg_nnum(x): return [3, 1]", [(1,)], [[1, 3]], entry="larg_nnum", dataset="mbpp") == ("pass", [True])
    assert untrusted("def check_str(x): return 'm'", [(1,)], [True], entry="check_str", dataset="mbpp") == ("pass", [True])


@pytest.mark.parametrize("code", [
    "raise AssertionError('1' * 34)",
    "def add(a, b): raise AssertionError('11')",
    "def add(a, b):\n    import os; os._exit(0)",
    "class Any:\n    def __eq__(self, other): return True\ndef add(a, b): return Any()",
    "import sys\nsys.exit(0)",
])
def test_evalplus_cheats(code):
    status, details = untrusted(code)
    assert status == "fail" and not any(details)


# --------------------------------------------------------------------------------------------------
# Rewards

ECHO = "n = int(input())\nprint(n * 2)"
CASES = {"inputs": ["1\n", "2\n", "30\n"], "outputs": ["2\n", "4\n", "60\n"]}


def fenced(code, name="python"):
    return "Here it is:\n```%s\n%s\n```\nDone." % (name, code)


def test_score_is_the_share_of_cases():
    wrong = "n = int(input())\nprint(2 * n if n < 10 else 0)"
    completions = [fenced(ECHO), ECHO, fenced(wrong), fenced("x = ("), "no code at all, sorry", fenced("while True: pass")]
    assert rewards.score(completions[:5], [CASES] * 5) == pytest.approx([1.0, 1.0, 2 / 3, 0.0, 0.0])
    assert rewards.score(completions[5:], [CASES], timeout=1) == [0.0]
    assert rewards.score(completions[:3], [CASES] * 3, strict=True) == [1.0, 1.0, 0.0]
    assert rewards.score([fenced(wrong)], [CASES], max_cases=2) == [1.0]


@pytest.mark.parametrize("tests", [
    CASES, json.dumps(CASES), {"input_output": json.dumps(CASES)},
    {"language": "python", "test_cases": [{"input": "4", "output": "8"}]}, [{"input": "4", "output": "8"}],
    {"inputs": [["5"]], "outputs": [["10"]]},
])
def test_forms_with_input_and_output(tests):
    assert rewards.score([ECHO, "print(1)"], [tests, tests]) == [1.0, 0.0]


@pytest.mark.parametrize("tests", [
    {"inputs": ["1\n2", "3\n4"], "outputs": ["3", "7"], "fn_name": "add"}, {"inputs": [[1, 2]], "outputs": [3], "fn_name": "add"},
    {"test_cases": [{"input": "1\n2", "output": "3", "fn_name": "add"}]}, ["assert add(1, 2) == 3", "assert add(2, 2) == 4"],
    "assert add(1, 2) == 3\nassert add(2, 2) == 4", {"inputs": [], "outputs": [], "assert_case": ["assert add(1, 2) == 3"]}, PROBLEM,
])
def test_forms_with_functions(tests):
    method = "class Solution:\n    def add(self, a, b): return a + b"
    right, wrong = "def add(a, b):\n    return a + b", "def add(a, b):\n    return -1"
    assert rewards.score([right, wrong], [tests, tests]) == [1.0, 0.0]
    if isinstance(tests, dict) and "entry_point" not in tests and "assert_case" not in tests:
        assert rewards.score([method], [tests]) == [1.0]


def test_share_of_a_functions_cases_cannot_be_forged():
    tests = {"inputs": [[n] for n in range(10)], "outputs": [n % 3 for n in range(10)], "fn_name": "f"}
    assert rewards.score(["def f(n): return n"], [tests]) == [0.3]
    cheats = ["raise AssertionError('1' * 42)", "def f(n): raise AssertionError('1' * 42)", "def f(n):\n    import os\n    os._exit(0)",
              "class Any:\n    def __eq__(self, other): return True\ndef f(n): return Any()"]
    assert rewards.score(cheats, [tests] * 4) == [0.0] * 4


def test_prelude_and_languages():
    assert rewards.score(["print(sqrt(4), Counter('aa')['a'])"], [{"inputs": [""], "outputs": ["2.0 2"]}]) == [1.0]
    shell = {"language": "sh", "test_cases": [{"input": "4\n", "output": "8\n"}]}
    assert rewards.score([fenced("read n; echo $((n * 2))", "sh")], [shell]) == [1.0]


def test_nothing_to_test_with():
    assert rewards.score(["print(1)"] * 3, [None, "", {"inputs": [], "outputs": []}]) == [None] * 3
    for tests, says in ((3, "int"), ("42", "tests nothing"), ({"a": 1}, "keys a"), ({"inputs": [1], "outputs": []}, "1 inputs and 0")):
        with pytest.raises(ValueError, match=says):
            rewards.score(["print(1)"], [tests])
    with pytest.raises(ValueError, match="2 completions, and tests for 1"):
        rewards.score(["", ""], [None])


def test_function_for_trl():
    chats = [[{"role": "assistant", "content": fenced(ECHO)}], [{"role": "assistant", "content": [{"type": "text", "text": "no"}]}]]
    columns = {"prompts": [["p"]] * 2, "completion_ids": [[1], [2]], "trainer_state": None}
    assert rewards.code_reward(completions=chats, tests=[CASES] * 2, **columns) == [1.0, 0.0]
    assert rewards.code_reward(completions=chats, verification_info=[json.dumps(CASES)] * 2, **columns) == [1.0, 0.0]
    with pytest.raises(ValueError, match="columns"):
        rewards.code_reward(completions=chats, **columns)
    assert rewards.code_reward.__name__ == "code_reward"  # TRL names its metrics by it


def test_functions_for_verl():
    truth = json.dumps(CASES)
    one = verl.compute_score("codecontests", fenced(ECHO), truth, {})
    assert one == {"score": 1.0, "passed": 3, "cases": 3, "is_judged": True}
    found = verl.compute_scores(["apps"] * 2, [fenced(ECHO), fenced("print(1)")], [truth] * 2, [{}] * 2)
    assert [each["score"] for each in found] == [1.0, 0.0] and found[0].keys() == found[1].keys()
    words = dict(word.split("=", 1) for word in verl.overrides())
    assert os.path.samefile(words["custom_reward_function.path"], verl.__file__)
    assert words["custom_reward_function.name"] == "compute_scores" and words["reward_model.reward_manager"] == "batch"
    # verl loads the file by its path, as a module of another name.
    text = ("import importlib.util, sys\nspec = importlib.util.spec_from_file_location('custom_module', sys.argv[1])\n"
            "module = importlib.util.module_from_spec(spec)\nspec.loader.exec_module(module)\nprint(module.compute_scores.__name__)")
    done = subprocess.run([sys.executable, "-c", text, verl.__file__], capture_output=True, text=True, check=False,
                          env=package.environment())
    assert done.stdout == "compute_scores\n", done.stderr


@pytest.mark.parametrize("mode,got,want,same", [
    ("exact", "1\n", "1\n", True), ("exact", "1", "1\n", False), ("rstrip-newlines", "1\n\n", "1", True),
    ("rstrip-newlines", "1 \n", "1", False), ("lines", " 1 \n2\n\n", "1\n2", True), ("lines", "1\n\n2", "1\n2", False),
    ("words", "1\n2 3", "1 2\n3", True), ("decimal", "1.0 2e1\nx", "1 20\nx", True), ("decimal", "0.1", "0.10000000000000001", False),
    ("decimal", "1e999999999999999999999", "2e999999999999999999999", False), ("decimal", "nan", "nan", True),
    ("decimal", "1", "", False), ("exit0", "anything", "", True),
])
def test_comparisons(mode, got, want, same):
    assert _compare.is_same(mode, got.encode(), want.encode()) is same


def test_unknown_comparison():
    with pytest.raises(ValueError, match="'loose' is not a way to compare"):
        rewards.score([ECHO], [CASES], compare="loose")


# --------------------------------------------------------------------------------------------------
# llm-sandbox

@pytest.fixture(scope="module")
def engine():
    with hutch.BlockingEngine(**package.options(image="python")) as one:
        yield one


def test_sandbox_session(engine, tmp_path):
    (tmp_path / "in.txt").write_text("hello")
    with llm_sandbox.SandboxSession(lang="python", keep_template=True, verbose=False, engine=engine) as session:
        result = session.run("print('Hello, World!')")
        assert (result.stdout, result.text, result.exit_code, result.success()) == ("Hello, World!\n", "Hello, World!\n", 0, True)
        session.copy_to_runtime(str(tmp_path / "in.txt"), "/sandbox/a/in.txt")
        assert session.run("open('out.txt', 'w').write(open('a/in.txt').read().upper())").success()
        session.copy_from_runtime("/sandbox/out.txt", str(tmp_path / "out.txt"))
        assert (tmp_path / "out.txt").read_text() == "HELLO"
        assert session.execute_command("ls; exit 3").exit_code == 3
        assert session.execute_command("cat in.txt", workdir="/sandbox/a").stdout == "hello"
        assert session.run("while True: pass", timeout=0.5).exit_code == 124
        assert "ZeroDivisionError" in session.run("1 / 0").stderr
        session.install(["json"])
        with pytest.raises(hutch.EngineError, match="nosuchlibrary.*nothing is installed"):
            session.run("1", libraries=["nosuchlibrary"])
        place = session._directory
    assert not os.path.exists(place)


@pytest.mark.parametrize("code", ["os.symlink('/etc/hostname', 'x')", "os.mkfifo('x')", "os.mkdir('x')",
                                  "os.symlink('/etc', 'd')", "os.mkdir('d'); os.mkdir('d/x', 0)"])
def test_files_of_a_sandbox_session_lead_nowhere(engine, tmp_path, code):
    with llm_sandbox.SandboxSession(engine=engine) as session:
        assert session.run("import os\n" + code).success()
        for path in ("/sandbox/x", "/sandbox/d/x", "/sandbox/d/hostname", "/etc/hostname", "../x", "/sandbox/../x"):
            with pytest.raises(hutch.HutchError):
                session.copy_from_runtime(path, str(tmp_path / "out"))
        (tmp_path / "in").write_text("new")
        for path in ("/sandbox/x", "/sandbox/d/x"):
            try:
                session.copy_to_runtime(str(tmp_path / "in"), path)
            except hutch.EngineError:
                continue
            session.copy_from_runtime(path, str(tmp_path / "out"))
            assert (tmp_path / "out").read_text() == "new"
            os.unlink(str(tmp_path / "out"))
        place = session._directory
    assert not os.path.exists(place)


def test_sandbox_session_that_is_refused():
    with pytest.raises(hutch.EngineError, match="'cobol' is no language"):
        llm_sandbox.SandboxSession(lang="cobol")
    with pytest.raises(hutch.EngineError, match="not open"):
        llm_sandbox.SandboxSession().run("1")
