"""Judges a program by tests that its own process never sees. `hutch batch` runs this inside a sandbox.

Two processes. The judge (this file) has the tests: it reads them from standard input after the other one was forked,
and runs them. The candidate (candidate.py) runs the program and answers calls. Between them go plain data (wire.py).
What is compared was decoded on the judge's side (remote.py), so an object that claims to equal everything, a patched
builtin or a look at the stack of the caller gets a program nowhere. The candidate has no way to the judge's output, and
its end (os._exit, a signal, a crash) is a failed test.

What the judge says, and only that, is on standard output: a token that it was given, and one line of JSON.
docs/batch.md says what this defends against, and what not.

judge.c makes one module of each file: this one is hutch_judge, the others are hutch_judge.wire and so on."""
import builtins
import os
import select
import signal
import sys
import time
import types

from hutch_judge.candidate import become_candidate
from hutch_judge.remote import CannotSend, Conversation
from hutch_judge.wire import MAX_TEXT, Broken, Channel, dumps, loads, text_of

END_WAIT_MS = 1000


def names_of(code):
    """All global names that a code object and those within it use."""
    found = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            found |= names_of(constant)
    return found


def defines(reference, name):
    """Does the task's own solution define this? Then the tests mean the program's, even if a builtin has that name."""
    return any(line.startswith((head + name + "(", head + name + ":")) for line in reference.split("\n")
               for head in ("def ", "class ", "async def "))


def finish_tests(job, names):
    """Calls what the tests only define."""
    if job["check"]:
        names["check"](names[job["entry"]] if job["entry"] in names else eval(job["entry"], names))
    if job["call_tests"]:
        for name, value in list(names.items()):
            if name.startswith("test_") and isinstance(value, types.FunctionType) and not value.__code__.co_argcount:
                value()


def prepare_tests(job):
    """The code of the tests, its namespace with all that is the task's own, and the names that the program must
    give."""
    module = types.ModuleType("tests")
    names = module.__dict__
    sys.modules["tests"] = module
    if "data" in job:
        names["DATA"] = job["data"]
    tests = list(job["tests"])
    try:
        exec(compile("\n".join(job["trusted"]), "<task>", "exec", dont_inherit=True), names)
    except Exception as error:
        if not job["trusted_may_fail"]:
            if not isinstance(error, NameError):
                raise
            tests = job["trusted"] + tests  # they need what the program defines
    code = compile("\n".join(tests), "<tests>", "exec", dont_inherit=True)
    wanted = []
    for name in sorted(names_of(code)):
        if name in names:
            continue
        if not hasattr(builtins, name) and name in sys.stdlib_module_names and not defines(job["reference"], name):
            names[name] = __import__(name)  # a program that passes has imported it
        elif not hasattr(builtins, name) or defines(job["reference"], name):
            wanted.append(name)
    if job["entry"] and job["entry"] not in wanted:
        wanted.append(job["entry"])
    return code, names, wanted


def run_together(side, job):
    """Has the candidate run the tests in its own process. Raises what they raised."""
    nonce = os.urandom(16).hex()
    tests = job["before"] * job["before_may_fail"] + job["tests"]
    side.channel.send({name: job[name] for name in ("check", "call_tests", "entry", "data") if name in job} |
                      {"tests": ["\n".join(tests)], "nonce": nonce})
    answer = side.receive()
    if answer[0] == "raised" and len(answer) == 4:
        raise side.exception(answer)
    if answer != ["passed", nonce]:
        raise Broken("an answer that cannot be read")


def judge(channel, job):
    """Returns what to report."""
    side = Conversation(channel, job["asks_objects"])
    here = side.receive()
    code, names, wanted = None, {}, []
    if not job["together"]:
        code, names, wanted = prepare_tests(job)
    start = {name: job[name] for name in ("program", "before", "before_may_fail", "no_input", "together")}
    channel.send(dict(start, wanted=wanted))
    answer = side.receive()
    if answer[0] == "not loaded" and len(answer) == 4:
        is_syntax = isinstance(answer[1], list) and "SyntaxError" in answer[1]
        kind = "compile_error" if is_syntax else "error"
        return {"kind": kind, "text": text_of(answer[2]), "name": text_of(answer[3])}
    if answer[0] != "loaded" or len(answer) != 2 or not isinstance(answer[1], dict):
        raise Broken("an answer that cannot be read")
    report = {"kind": "passed", "guarded": here[1:] == [True]}
    try:
        if job["together"]:
            run_together(side, job)
        else:
            for name in wanted:
                if name in answer[1]:
                    names[name] = side.understand(answer[1][name])
            if job["entry"] and job["entry"] not in answer[1]:
                raise NameError("name '%s' is not defined" % job["entry"])
            exec(code, names)
            finish_tests(job, names)
    except (Broken, CannotSend):
        raise
    except BaseException as error:
        if not side.failure:
            text = getattr(error, "hutch_text", None)
            text = text_of(error) if text is None else text[:MAX_TEXT]
            return dict(report, kind="error", text=text, name=type(error).__name__)
    if side.failure:
        raise side.failure
    return report


def stay_clear():
    """From here on the candidate may write files: nothing is imported from where it can. The interpreter's own tree is
    part of the image, which is read-only."""
    os.chdir("/")
    sys.path[:] = [path for path in sys.path if path.startswith((sys.base_prefix + "/", sys.base_exec_prefix + "/"))]
    sys.dont_write_bytecode = True


def how_it_ended(channel, pid):
    if channel.pidfd is not None:
        poll = select.poll()
        poll.register(channel.pidfd, select.POLLIN)
        poll.poll(END_WAIT_MS)  # its pipe is closed a moment before it has ended
    try:
        ended, status, usage = os.wait4(pid, os.WNOHANG)
    except ChildProcessError:
        return {}
    if not ended:
        return {}
    how = {"cpu_ms": int((usage.ru_utime + usage.ru_stime) * 1000)}
    if os.WIFSIGNALED(status):
        how["signal"] = os.WTERMSIG(status)
    elif os.WIFEXITED(status):
        how["exit_code"] = os.WEXITSTATUS(status)
    return how


def cpu_ms_of(pid):
    """CPU time of the candidate's process, which is not waited for before the end. Where no cgroup counts, this alone
    tells it."""
    try:
        return int(time.clock_gettime((~pid << 3) | 2) * 1000)  # clock_getcpuclockid(3)
    except OSError:
        return 0


def main():
    to_candidate, to_judge = os.pipe(), os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            become_candidate(Channel(to_candidate[0], to_judge[1]), finish_tests)
        finally:
            os._exit(1)
    os.close(to_candidate[0])
    os.close(to_judge[1])
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    channel = Channel(to_judge[0], to_candidate[1])
    report = {"kind": "internal", "text": "no job came"}
    token = ""
    try:
        try:
            channel.pidfd = os.pidfd_open(pid)
        except OSError:
            pass  # its end shows by the pipe
        job = loads(sys.stdin.buffer.read().decode("utf-8", "surrogatepass"))
        token = job["token"]
        stay_clear()
        report = judge(channel, job)
    except Broken as error:
        report = dict(how_it_ended(channel, pid), kind="ended" if str(error) == "ended" else "garbage", text=str(error))
    except CannotSend as error:
        report = {"kind": "apart", "text": str(error)}
    except BaseException as error:
        report = {"kind": "internal", "text": "%s: %s" % (type(error).__name__, text_of(error))}
    report.setdefault("cpu_ms", cpu_ms_of(pid))
    text = "%s %s\n" % (token, dumps(report))
    os.write(1, text.encode("ascii"))
    os._exit(0)
