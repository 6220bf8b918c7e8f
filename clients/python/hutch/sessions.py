"""A session: a sandbox that is kept for several cells, which share variables and files as those of a notebook do."""
from __future__ import annotations

import asyncio
import codecs
import collections
import ctypes
import inspect
import io
import os
import signal
from typing import TYPE_CHECKING, Any, AsyncIterator, BinaryIO, Callable, Deque, Dict, Generator, Iterable, List, \
    Optional, Tuple, Union, cast

from . import _abi
from ._core import Owner
from .errors import BusyError, ClosedError, EngineError, NotFoundError
from .options import Path, Text, make_cell, make_process, make_question, milliseconds, source
from .results import CellResult, Ended, FileEntry, Output, ProcessEnd, Reply
from .session_paths import PathOrder, SessionPaths
from .tools import ANSWER_SECONDS, Tools, call, encode, encode_error, names

if TYPE_CHECKING:
    from .engine import Engine

OnOutput = Callable[[Output], Any]
OnBytes = Callable[[str, bytes], Any]
OnInput = Callable[[str, bool], Any]  # (prompt, is it a password): the line, or None for the end of the input
STREAMS = {1: "stdout", 2: "stderr"}
COPY_BYTES = 1 << 20


class Pending(Owner):
    """What waits its turn in a session, and is answered once."""

    def __init__(self, session: "Session") -> None:
        self._session = session
        self._future: "asyncio.Future[Any]" = asyncio.get_running_loop().create_future()

    def done(self) -> bool:
        return self._future.done()

    def _conclude(self, value: Any) -> None:
        self._session._queue.remove(self)
        if self._future.done():
            return
        if isinstance(value, BaseException):
            self._future.set_exception(value if isinstance(value,
                                                           Exception) else EngineError("interrupted: %r" % value))
            self._future.exception()  # what nobody awaits any more is no mistake
        else:
            self._future.set_result(value)


class Order(Pending):
    """A checkpoint, rollback, fork, switch or drop."""

    def hear(self, what: str, value: Any) -> None:
        if what != "reply":
            self._conclude(value)
            return
        ok, message, number, lost, ms, size, _ = value
        self._conclude(Reply(number, lost, ms, size) if ok else EngineError(message))


class Question(Pending):
    """What the shell is asked."""

    def hear(self, what: str, value: Any) -> None:
        if what != "reply":
            self._conclude(value)
            return
        self._conclude(value[-1] if value[0] else EngineError(value[1]))


class Cell(Pending):
    """A cell that was handed in: `await cell` is its result, `async for output in cell` what it shows meanwhile."""

    def __init__(self, session: "Session", on_output: Optional[OnOutput], on_input: Optional[OnInput],
                 streams: bool, tools: Tools) -> None:
        super().__init__(session)
        self.id = 0
        self._tools = tools
        self._on_output, self._on_input = on_output, on_input
        self._outputs: "Optional[asyncio.Queue[Optional[Output]]]" = asyncio.Queue() if streams else None
        make = codecs.getincrementaldecoder("utf-8")
        self._decoders = {number: make("replace") for number in STREAMS}  # a character may come in two pieces
        self._tasks: List["asyncio.Task[None]"] = []

    def __await__(self) -> Generator[Any, None, CellResult]:
        return self.result().__await__()

    async def result(self) -> CellResult:
        try:
            found = await self._future
        except asyncio.CancelledError:
            self.interrupt()
            raise
        assert isinstance(found, CellResult)
        return found

    async def __aiter__(self) -> AsyncIterator[Output]:
        if self._outputs is None:
            raise EngineError("the cell was started without stream=True, so what it shows is in its result")
        while True:
            output = await self._outputs.get()
            if output is None:
                self._outputs.put_nowait(None)  # for whoever iterates once more
                return
            yield output

    def interrupt(self) -> None:
        """KeyboardInterrupt in this cell. One that waits is not executed, and ends as killed."""
        if self._session.is_open and self.id:
            self._session._engine._core.ask("cancel_cell", self._session.id, self.id)

    # --- what the engine tells

    def hear(self, what: str, value: Any) -> None:
        if what == "stream":
            self._show_text(value[0], self._decoders[value[0]].decode(value[1]))
        elif what == "shown":
            self._show(Output(value[0], data=value[1]))
        elif what == "asked":
            self._ask(*value)
        elif what == "called":
            self._tasks.append(asyncio.ensure_future(self._call(*value)))
        else:
            for number, decoder in self._decoders.items():
                self._show_text(number, decoder.decode(b"", True))
            for task in self._tasks:
                task.cancel()
            self._conclude(value)
            if self._outputs is not None:
                self._outputs.put_nowait(None)

    def _show_text(self, number: int, text: str) -> None:
        if text:
            self._show(Output("stream", stream=STREAMS[number], text=text))

    def _show(self, output: Output) -> None:
        if self._outputs is not None:
            self._outputs.put_nowait(output)
        if self._on_output is not None:
            try:
                self._on_output(output)
            except Exception as error:
                self._refuse(error)

    def _refuse(self, error: Exception) -> None:
        """The caller's own callback failed: that is raised where the cell is awaited."""
        self._on_output = None
        if not self._future.done():
            self._future.set_exception(error)
            self._future.exception()
        self.interrupt()

    async def _call(self, number: int, name: str, arguments: Dict[str, Any]) -> None:
        """What a tool raises is raised where the code has called it."""
        try:
            value = call(self._tools, name, arguments)
            text, is_error = encode(name, await value if inspect.isawaitable(value) else value)
        except Exception as error:
            text, is_error = encode_error(error)
        while not self.done() and self._session.is_open:
            try:
                self._session._engine._core.do("answer", self._session.id, number, text.encode("ascii"), int(is_error))
                return
            except BusyError:
                await asyncio.sleep(ANSWER_SECONDS)
            except NotFoundError:
                return  # the cell is over, or nothing waits for it any more
            except EngineError as error:  # such as an answer that is too long
                text, is_error = encode_error(error)

    def _ask(self, prompt: str, is_password: bool) -> None:
        try:
            answer = self._on_input(prompt, is_password) if self._on_input else None
        except Exception as error:
            asyncio.get_running_loop().call_soon(self._answer, None)
            self._refuse(error)
            return
        if inspect.isawaitable(answer):
            self._tasks.append(asyncio.ensure_future(self._answer_later(answer)))
        else:
            asyncio.get_running_loop().call_soon(self._answer, answer)

    def _answer(self, text: Optional[str]) -> None:
        """Not for the next cell: this one may have ended meanwhile."""
        if self._session.is_open and self._session._queue and self._session._queue[0] is self:
            try:
                self._session.reply(text)
            except (TypeError, ValueError) as error:
                self._session.reply(None)
                self._refuse(error)

    async def _answer_later(self, answer: Any) -> None:
        try:
            text = await answer
        except Exception as error:
            self._answer(None)
            self._refuse(error)
            return
        self._answer(text)


class Process(Owner):
    """A program in a session: `await process` is its end, `async for stream, data in process` what it prints."""

    def __init__(self, session: "Session", on_output: Optional[OnBytes], streams: bool) -> None:
        self._session = session
        self._on_output = on_output
        self._future: "asyncio.Future[ProcessEnd]" = asyncio.get_running_loop().create_future()
        self._chunks: "Optional[asyncio.Queue[Optional[Tuple[str, bytes]]]]" = asyncio.Queue() if streams else None
        self._room = asyncio.Event()
        self.id = 0

    def __await__(self) -> Generator[Any, None, ProcessEnd]:
        return asyncio.shield(self._future).__await__()

    async def wait(self) -> ProcessEnd:
        """Its end. Cancelling the task that awaits it leaves the process running."""
        return await self

    async def __aiter__(self) -> AsyncIterator[Tuple[str, bytes]]:
        if self._chunks is None:
            raise EngineError("the process was started without stream=True")
        while True:
            chunk = await self._chunks.get()
            if chunk is None:
                self._chunks.put_nowait(None)
                return
            yield chunk

    def done(self) -> bool:
        return self._future.done()

    def _tell(self, name: str, *args: Any) -> int:
        self._session._check()
        return self._session._engine._core.tell_process(name, self._session.id, self.id, *args)

    async def write(self, data: Text) -> None:
        """Returns when its input has taken all of it. EngineError with EPIPE when it was closed."""
        left = source(data)
        while left:
            self._room.clear()
            try:
                left = left[self._tell("write", left, len(left)):]
            except BusyError:
                await self._room.wait()

    def close_stdin(self) -> None:
        self._tell("close_stdin")

    def signal(self, number: int) -> None:
        """To its process group."""
        self._tell("signal", number)

    def resize(self, rows: int, columns: int) -> None:
        self._tell("resize", rows, columns)

    def hold(self, is_held: bool = True) -> None:
        """Its output is not read until `hold(False)`, so it waits when its pipes are full."""
        self._tell("hold", int(is_held))

    def _fail(self, error: Exception) -> None:
        if not self._future.done():
            self._future.set_exception(error)
            self._future.exception()  # what nobody awaits any more is no mistake

    def hear(self, what: str, value: Any) -> None:
        if what == "output":
            stream, data = STREAMS.get(value[0], "stdout"), value[1]
            if self._chunks is not None:
                self._chunks.put_nowait((stream, data))
            if self._on_output is not None:
                try:
                    self._on_output(stream, data)
                except Exception as error:  # the caller's own: it is raised where the process is awaited
                    self._on_output = None
                    self._fail(error)
                    self.signal(signal.SIGKILL)
            return
        self._room.set()
        if what == "room":
            return
        if not self._future.done():
            if what == "end":
                self._future.set_result(ProcessEnd(*value))
            else:
                self._fail(value if isinstance(value, Exception) else EngineError("interrupted: %r" % value))
        if self._chunks is not None:
            self._chunks.put_nowait(None)


class Session(SessionPaths):
    """`async with engine.session() as session: result = await session.run("x = 1")`."""

    def __init__(self, engine: "Engine") -> None:
        self._engine = engine
        self._queue: Deque[Pending] = collections.deque()
        self._has_files = False
        self._ended: "asyncio.Future[Ended]" = asyncio.get_running_loop().create_future()
        self.id = 0

    async def __aenter__(self) -> "Session":
        return self

    async def __aexit__(self, *_: Any) -> None:
        if self._engine.is_open:
            await self.close()

    @property
    def is_open(self) -> bool:
        return self.id != 0 and not self._ended.done() and self._engine.is_open

    def hear(self, what: str, value: Any) -> None:
        if self._ended.done():
            return
        if what == "end":
            self._ended.set_result(Ended(*value))
        else:
            self._ended.set_exception(value if isinstance(value, Exception) else EngineError(str(value)))
            self._ended.exception()

    def _check(self) -> None:
        if self._ended.done() and self._ended.exception() is None:
            raise ClosedError("the session is over: %s" % self._ended.result().why)
        self._engine._attach()

    async def ended(self) -> Ended:
        """Waits until the session is over: closed, idle for too long, or broken."""
        return await asyncio.shield(self._ended)

    async def close(self) -> Ended:
        """Cells that run or wait end as killed. Returns the last word on the session."""
        if self.is_open:
            self._engine._core.ask("close", self.id)
        return await self.ended()

    # --- cells

    def start(self, code: Text, *, on_output: Optional[OnOutput] = None, on_input: Optional[OnInput] = None,
              stream: bool = False, tools: Optional[Tools] = None, **options: Any) -> Cell:
        """Hands a cell in, behind those that wait. Options are those of `run()`."""
        self._check()
        raw = make_cell(code, allow_input=on_input is not None, calls=names(tools) if tools else None, **options)
        cell = Cell(self, on_output, on_input, stream, tools or {})
        cell.id = self._engine._core.execute(cell, self.id, raw)
        self._queue.append(cell)
        return cell

    async def run(self, code: Text, *, on_output: Optional[OnOutput] = None, on_input: Optional[OnInput] = None,
                  tools: Optional[Tools] = None, **options: Any) -> CellResult:
        """Executes a cell. context: the name of a separate set of variables; timeout: seconds; env, variables while it
        runs; cwd; wants_value, for `result.value_json`; silent, store_history, stop_on_error, widgets as in struct
        hutch_cell. tools={"name": function}: the code calls `name(…)`, or awaits it in an asynchronous function; it
        gets what the function returns, or awaits, which JSON has to have got, and what it raises. on_output(output) hears what is shown as it comes; on_input(prompt,
        is_password) answers input(), at once or as a coroutine, and None ends the input. Cancelling the task that
        awaits this interrupts the cell, or takes it back when it waits."""
        return await self.start(code, on_output=on_output, on_input=on_input, tools=tools, **options)

    def interrupt(self) -> bool:
        """KeyboardInterrupt in the cell that runs. False when there is none."""
        self._check()
        return self._engine._core.ask("interrupt", self.id)

    def reply(self, text: Optional[str]) -> bool:
        """Answers input(); None ends the input. `on_input` is the usual way."""
        self._check()
        return self._engine._core.ask("reply", self.id, None if text is None else _abi.plain(text, "an answer"))

    def restart(self) -> None:
        """Another interpreter, with the same files. Cells that run or wait end as killed; checkpoints and branches
        go."""
        self._check()
        self._engine._core.do("restart", self.id)

    # --- processes beside the cells; the session was opened with max_processes

    def spawn(self, command: Union[str, Iterable[Text]], *, on_output: Optional[OnBytes] = None, stream: bool = False,
              **options: Any) -> Process:
        """Starts a program: a text for the shell, or a program and its arguments. env, cwd, stdin (whether it has one),
        terminal=(rows, columns), timeout in seconds, output_bytes. What it prints goes to @on_output(stream, data), or
        with @stream to `async for`."""
        self._check()
        process = Process(self, on_output, stream)
        process.id = self._engine._core.spawn(process, self.id, make_process(command, **options))
        return process

    def processes(self) -> List[Dict[str, Any]]:
        """Those that run or wait, as hutch_session_processes() has them."""
        self._check()
        return self._engine._core.processes(self.id)

    # --- life

    def pause(self) -> None:
        """All its processes stand still, and so do the clocks of its cell and of its idleness; memory is kept."""
        self._check()
        self._engine._core.do("pause", self.id)

    def resume(self) -> None:
        self._check()
        self._engine._core.do("resume", self.id)

    def info(self) -> Dict[str, Any]:
        """The JSON object of docs/sessions.md: state, times, memory, contexts, checkpoints, branches."""
        self._check()
        return self._engine._core.info(self.id)

    def set_lifetime(self, *, idle: Optional[float] = None, lifetime: Optional[float] = None) -> None:
        """Seconds from now: it is closed after @idle without a cell, and after @lifetime. None: stays as it is."""
        self._check()
        self._engine._core.do("set_lifetime", self.id, milliseconds(idle, "idle"), milliseconds(lifetime, "lifetime"))

    # --- checkpoints and branches

    async def _order(self, name: str, *args: Any) -> Reply:
        self._check()
        order = Order(self)
        self._engine._core.order(order, name, self.id, *args)
        self._queue.append(order)
        found = await order._future
        assert isinstance(found, Reply)
        return found

    async def checkpoint(self) -> Reply:
        """Keeps variables and files as they are; `reply.id` is for `rollback()`."""
        return await self._order("checkpoint")

    async def rollback(self, checkpoint: int) -> Reply:
        """Variables and files are as they were; as often as wanted."""
        return await self._order("rollback", checkpoint)

    async def fork(self) -> Reply:
        """Makes a branch that has what there is now; `reply.id` is for `switch()`. The session stays where it is."""
        return await self._order("fork")

    async def switch(self, branch: int = 0) -> Reply:
        """The cells from here on are that branch's; 0: the one that the session began with."""
        return await self._order("switch", branch)

    async def drop(self, checkpoint_or_branch: int) -> Reply:
        return await self._order("drop", checkpoint_or_branch)

    async def reset_context(self, context: str = "main") -> None:
        """It loses its variables, In, Out and count."""
        await self._order("reset_context", _abi.plain(context, "context"))

    async def drop_context(self, context: str) -> None:
        """It is gone, and is made anew when it is named again."""
        await self._order("drop_context", _abi.plain(context, "context"))

    # --- questions to the shell, in the words of Jupyter's protocol

    async def _ask_shell(self, kind: int, code: Text, cursor: Optional[int], context: Optional[str],
                         is_detailed: bool = False) -> Dict[str, Any]:
        self._check()
        question = Question(self)
        raw = make_question(kind, code, cursor=cursor, context=context, detail=is_detailed)
        self._engine._core.order(question, "ask", self.id, ctypes.byref(raw))
        self._queue.append(question)
        found = await question._future
        assert isinstance(found, dict)
        return found

    async def complete(self, code: Text, cursor: Optional[int] = None, *,
                       context: Optional[str] = None) -> Dict[str, Any]:
        """What may stand at @cursor, code points from the begin, None: the end. Waits its turn, as a cell does."""
        return await self._ask_shell(0, code, cursor, context)

    async def inspect(self, code: Text, cursor: Optional[int] = None, *, context: Optional[str] = None,
                      detail: bool = False) -> Dict[str, Any]:
        """What is known of the name at @cursor; with @detail its source, too."""
        return await self._ask_shell(1, code, cursor, context, detail)

    async def is_complete(self, code: Text, *, context: Optional[str] = None) -> Dict[str, Any]:
        """Whether a cell with this code can be executed, or more has to come."""
        return await self._ask_shell(2, code, None, context)

    # --- files below /mnt/data; names are relative, and no link is followed

    async def files_ready(self) -> None:
        """Waits until they are there, which they are from the session's first sandbox on. `upload()` and `download()`
        do so by themselves; the others are done at once, and raise `BusyError` before."""
        if self._has_files:
            return
        self._check()
        wait = PathOrder()  # it is no order of the queue
        self._engine._core.order(wait, "await_files", self.id)
        is_ok, message, *_ = await wait.future
        if not is_ok:
            raise EngineError(message)
        self._has_files = True

    def files(self) -> List[FileEntry]:
        self._check()
        return [FileEntry.from_json(entry) for entry in self._engine._core.files(self.id)]

    def open_file(self, name: Path, mode: str = "rb") -> BinaryIO:
        """A regular file to read ("rb"), or a new or emptied one to write ("wb"). Its owner inside may change it
        meanwhile."""
        flags = {"rb": os.O_RDONLY, "wb": os.O_WRONLY}.get(mode)
        if flags is None:
            raise ValueError("mode is %r: it can be \"rb\" or \"wb\"" % mode)
        self._check()
        return cast(BinaryIO, os.fdopen(self._engine._core.do("open_file", self.id, _file_name(name), flags), mode))

    async def upload(self, name: Path, content: Union[Text, BinaryIO]) -> None:
        """Writes a file: a text, bytes, or what is left of a binary file."""
        reader = content if hasattr(content, "read") else io.BytesIO(source(content))
        await self.files_ready()
        await asyncio.get_running_loop().run_in_executor(None, _copy, reader, self.open_file(name, "wb"))

    async def download(self, name: Path, to: Optional[BinaryIO] = None, max_bytes: int = 1 << 30) -> bytes:
        """The contents of a file; with @to they are written there, and nothing is returned. A file of more than
        @max_bytes is an error, as its owner inside may write on while it is read."""
        gathered = io.BytesIO()
        await self.files_ready()
        await asyncio.get_running_loop().run_in_executor(None, _copy, self.open_file(name),
                                                         gathered if to is None else to, max_bytes)
        return gathered.getvalue()

    def delete_file(self, name: Path) -> None:
        """The file or link, or the directory with all that is in it."""
        self._check()
        self._engine._core.do("delete_file", self.id, _file_name(name))


def _file_name(name: Path) -> bytes:
    found = _abi.plain(os.fsencode(name), "the name of a file")
    assert isinstance(found, bytes)
    return found


def _copy(reader: Any, writer: Any, max_bytes: Optional[int] = None) -> None:
    """Closes the one of the two that is a file of the session."""
    copied = 0
    with reader if max_bytes is not None else writer:
        while True:
            data = reader.read(COPY_BYTES)
            if not data:
                return
            copied += len(data)
            if max_bytes is not None and copied > max_bytes:
                raise EngineError("the file has more than %d bytes" % max_bytes)
            writer.write(data)
