# The interpreter of a session: executes cells on orders from its socket, and says there what happens (docs/cells.md).
# It runs as IPython's kernel runs, in a task of an asyncio loop that is never left: tasks that a cell has started go on
# while it waits.
import _signal
import builtins
import functools
import os
import sys

import calls
import channel
import contexts
import figures
import frames
import park
import questions
import shell
import tracebacks
import values


launch, dispatch = None, None  # call a function, from where a kernel calls its loop and a cell


class Ended(Exception):
    """Ends the loop; its argument is the exit status."""


class Interpreter:
    def __init__(self, link):
        self.link = link
        self.status = 0
        self.task_name = None  # of cells that await; asyncio's own counter is a program's
        self.pid = os.getpid()
        self.parts = None
        self.contexts = None
        self.calls = None
        self.orders = {
            "execute": self.execute,
            "park": self.park,
            "end": self.end,
            "reply": self.ignore,
        }
        self.orders.update(dict.fromkeys([*questions.KNOWN, "reset_context", "drop_context"], self.answer))

    # --- orders ---

    async def serve(self):
        import asyncio

        loop = asyncio.get_running_loop()
        self.link.send({"is": "ready", "language_info": self.parts.kernel.language_info})
        while True:
            await wait_until_readable(loop, channel.SOCKET)
            self.leave_if_forked()
            try:
                order, fds = self.link.receive()
            except (channel.Closed, OSError, ValueError):
                os._exit(0)  # the engine is gone, or has no more use for it
            try:
                await self.orders.get(order.get("do"), self.ignore)(order, fds)
            finally:
                for fd in fds:
                    os.close(fd)

    async def ignore(self, order, fds):
        pass

    async def end(self, order, fds):
        raise Ended(self.status)

    async def park(self, order, fds):
        import asyncio

        try:
            park.park(self, asyncio.get_running_loop(), fds)
        except park.NotCopied as problem:
            self.link.send_unnumbered({"is": "failed", "why": str(problem)})
        except Exception as problem:
            why = "the interpreter cannot be copied: " + tracebacks.one_line(problem)
            self.link.send_unnumbered({"is": "failed", "why": why})

    async def answer(self, order, fds):
        """What the program defines may run for it, and can be interrupted."""
        frame = {"is": "answer", "id": order.get("id"), "ok": False}
        try:
            try:
                frame.update(reply=self.reply_to(order["do"], order.get("context") or contexts.MAIN, order), ok=True)
            finally:
                self.link.deafen()
        except BaseException as problem:  # whatever the program's own code raises
            self.link.deafen()
            frame.update(ok=False, why=channel.shortened(tracebacks.one_line(problem)))
        ignore_interrupts()
        self.leave_if_forked()
        self.link.send_unnumbered(frame)
    def reply_to(self, what, context, order):
        if what == "reset_context":
            self.contexts.reset(context)
            return {}
        if what == "drop_context":
            self.contexts.drop(context)
            return {}
        self.contexts.enter_known(context)
        _signal.signal(_signal.SIGINT, _signal.default_int_handler)
        return questions.KNOWN[what](self.parts.shell, order)

    def renew(self):
        """In a copy of the process."""
        self.pid = os.getpid()
        self.link.mail.renew()
        shell.renew()

    # --- one cell ---

    async def execute(self, order, fds):
        import asyncio

        interactive, code = self.parts.shell, str(order["code"])
        try:
            self.contexts.enter(order.get("context") or contexts.MAIN, order.get("cwd"))
        except (RuntimeError, OSError) as problem:
            self.refuse(order, problem)
            return
        self.set_parent(order)
        self.link.send({"is": "begin", "id": order.get("id"), "count": interactive.execution_count})
        filename = interactive.compile.get_code_name(code, code, interactive.execution_count)
        figures.before(interactive, order.get("figures", True))
        result, error = None, None
        self.parts.widgets.begin(bool(order.get("widgets")), self.parts.shell.parent_header["header"]["msg_id"])
        silent, history = bool(order.get("silent")), bool(order.get("history", not order.get("silent")))
        self.take_input(bool(order.get("stdin")))
        environment = enter_environment(order.get("env") or {})
        self.calls.begin(order.get("calls") or (), asyncio.get_running_loop())
        try:
            try:
                result = await self.run(code, silent, history)
            finally:
                self.link.deafen()
        except BaseException as problem:  # while nothing of the program was running
            self.link.deafen()
            error = problem
        ignore_interrupts()
        self.leave_if_forked()
        self.calls.end()
        self.return_input()
        enter_environment(environment)
        if error is not None:
            self.show(error)
        figures.after(interactive)
        if error is None and result is not None:  # else the interrupt came when all was done, and was shown
            error = result.error_before_exec or result.error_in_exec
        interactive.payload_manager.clear_payload()
        channel.flush_streams()
        self.end_widgets()
        self.status = 0 if error is None and (result is None or result.success) else 1
        frame = self.done(order, error, filename)
        if order.get("value") and self.status == 0 and result is not None:
            frame.update(value=values.as_json(result.result))
        self.link.send(frame)
        if interactive.exit_now:  # exit() and quit() end a kernel
            raise Ended(0)

    def refuse(self, order, problem):
        """The cell is not executed, and has no count."""
        self.link.send({"is": "begin", "id": order.get("id")})
        told = {"ename": type(problem).__name__, "evalue": str(problem)}
        self.link.send(dict(told, traceback=[tracebacks.one_line(problem)], **{"is": "error"}))
        self.link.send(dict(told, status="error", id=order.get("id"), count=0, open_figures=0, **{"is": "done"}))

    def leave_if_forked(self):
        """A child of the program's that has come out of the cell's code has no more to do: there is one interpreter."""
        if os.getpid() != self.pid:
            channel.flush_streams()
            os._exit(0)

    def done(self, order, error, filename):
        frame = {"is": "done", "id": order.get("id"), "status": "error" if self.status else "ok"}
        frame.update(count=self.parts.shell.execution_count - 1, open_figures=figures.count_open())
        if error is not None:
            frame.update(ename=channel.shortened(type(error).__name__), evalue=channel.shortened(text_of(error)))
            line, cause = tracebacks.line_of(error, filename), tracebacks.cause_of(error)
            if line is not None:
                frame.update(line=line)
            if cause is not None:
                frame.update(cause=cause)
        return frame

    async def run(self, code, silent, history):
        """As ipykernel.ipkernel: IPythonKernel.do_execute()."""
        import asyncio

        interactive = self.parts.shell
        trouble = None
        _signal.signal(_signal.SIGINT, _signal.default_int_handler)
        try:
            transformed = interactive.transform_cell(code)
        except Exception:
            transformed, trouble = code, sys.exc_info()
        is_async = interactive.should_run_async(code, transformed_cell=transformed, preprocessing_exc_tuple=trouble)
        if not is_async or interactive.loop_runner is not self.parts.asyncio_runner:
            run_cell = functools.partial(interactive.run_cell, code, store_history=history, silent=silent)
            return dispatch(run_cell)
        loop, result = asyncio.get_running_loop(), None
        coroutine = interactive.run_cell_async(
            code, store_history=history, silent=silent, transformed_cell=transformed, preprocessing_exc_tuple=trouble
        )
        cell = loop.create_task(coroutine, name=self.task_name)

        def interrupt(*_):
            """Of a cell that waits, what it waits for is cancelled, as in ipykernel. One that is busy would not
            notice."""
            if asyncio.current_task(loop) is cell:
                raise KeyboardInterrupt
            loop.call_soon_threadsafe(cell.cancel)

        _signal.signal(_signal.SIGINT, interrupt)
        try:
            result = await cell
        finally:
            interactive.events.trigger("post_execute")
            if not silent:
                interactive.events.trigger("post_run_cell", result)
        return result

    def end_widgets(self):
        """What programs do when their Output widgets are told what they show can be interrupted, as a cell can."""
        try:
            try:
                _signal.signal(_signal.SIGINT, _signal.default_int_handler)
                self.parts.widgets.end(self.parts.kernel.comm_manager, self.parts.session)
            finally:
                self.link.deafen()
        except Exception as problem:
            self.link.deafen()
            self.show(problem)
        except BaseException:
            self.link.deafen()
        ignore_interrupts()

    def show(self, problem):
        try:
            self.parts.shell.showtraceback((type(problem), problem, problem.__traceback__))
        except BaseException:
            pass

    def set_parent(self, order):
        header = {"msg_id": "%s_%s" % (self.parts.session.session, order.get("id")), "msg_type": "execute_request"}
        parent = {"header": header, "msg_id": header["msg_id"], "msg_type": "execute_request", "metadata": {}}
        parent.update(parent_header={}, content={"code": order["code"]})
        self.parts.kernel.set_parent([], parent)
        self.parts.shell.set_parent(parent)

    def take_input(self, is_allowed):
        import getpass

        self.parts.kernel._allow_stdin = is_allowed
        self.saved_input, self.saved_getpass = builtins.input, getpass.getpass
        builtins.input, getpass.getpass = self.parts.kernel.raw_input, self.parts.kernel.getpass

    def return_input(self):
        import getpass

        builtins.input, getpass.getpass = self.saved_input, self.saved_getpass


def enter_environment(variables):
    """Sets them, and removes those that are None. What they were before, in the same form."""
    before = {name: os.environ.get(name) for name in variables}
    for name, value in variables.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    return before


def ignore_interrupts():
    """So that Python knows it, too, after Channel.deafen(): one that was on its way has come by then."""
    try:
        _signal.signal(_signal.SIGINT, _signal.SIG_IGN)
    except KeyboardInterrupt:
        _signal.signal(_signal.SIGINT, _signal.SIG_IGN)


async def wait_until_readable(loop, fd):
    future = loop.create_future()
    loop.add_reader(fd, lambda: future.done() or future.set_result(None))
    try:
        await future
    finally:
        loop.remove_reader(fd)


def text_of(error):
    try:
        return str(error)
    except Exception:
        return ""


def run_loop(interpreter):
    import asyncio

    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    for _ in range(2):
        loop.create_task(asyncio.sleep(0))
    serving = loop.create_task(interpreter.serve())  # Task-3, as in a kernel: a program can see it
    serving.add_done_callback(lambda _: loop.stop())
    while True:
        try:
            launch(loop.run_forever)
            if serving.done():
                serving.result()
        except Ended as end:
            return end.args[0]
        except (SystemExit, KeyboardInterrupt, RuntimeError):
            interpreter.leave_if_forked()
            if serving.done():  # else a task of the program's has ended like this or stopped the loop
                raise


def stand_in_for_kernel():
    """In the zygote: what is on the stack below a cell stands where a kernel's functions do."""
    global launch, dispatch
    launch, dispatch = frames.chain(frames.LAUNCH[2:]), frames.chain(frames.DISPATCH[3:])
    own = main, run_loop, Interpreter.serve, Interpreter.execute, Interpreter.run
    for function, place in zip(own, frames.LAUNCH[:2] + frames.DISPATCH[:3]):
        frames.put(function, place)


def main(job):
    """Called by rootfs/helper/pymain.c in the worker that is to execute cells. Returns the exit status."""
    link = channel.Channel()
    interpreter = Interpreter(link)
    try:
        start = channel.decode(job)
        if shell.made is None:
            shell.make(link)
            stand_in_for_kernel()
    except ImportError as error:
        why = "this image cannot execute cells, as Python finds no ipykernel in it: %s" % error
        link.send_unnumbered({"is": "failed", "why": why})
        return 1
    interpreter.link = link = shell.made.link
    link.open(start["token"])
    figures.install(shell.made.shell)
    interpreter.parts = shell.install()
    interpreter.contexts = contexts.Contexts(interpreter.parts.shell)
    link.mail = calls.Mail(link)
    interpreter.calls = calls.Calls(link.mail, interpreter.parts.shell)
    status = run_loop(interpreter)
    _signal.signal(_signal.SIGINT, _signal.SIG_IGN)
    return status
