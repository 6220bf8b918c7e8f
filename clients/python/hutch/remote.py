"""What can be asked of `hutch serve`: the same for `Client`, whose methods return answers, and for `AsyncClient`, whose
methods return awaitables of them."""
from __future__ import annotations

import functools
import json
import os
import urllib.parse
from typing import Any, BinaryIO, Callable, Dict, Iterable, Iterator, List, Mapping, Optional, Tuple, Type, Union, cast

from . import _abi
from ._wire import BYTES, LINES, Call, ServerConflictError, ServerError, broken_off, call_body, check_key, \
    limits_of, nothing, process_body, read_batch, read_object, run_body, target_names
from .options import Path, Text, milliseconds, source
from .paths import Gathered, entries, first_entry, path_bytes
from .results import CellResult, FileEntry, Output, Reply, Result
from .tools import Tools, call as call_tool, encode, encode_error

BATCH_BYTES = 4 << 20  # of one request; a server takes 16 MiB unless it was told otherwise
MAX_BYTES = 1 << 30
SHOWN = ("display", "value", "error", "update", "clear")


class CallbackFailed(Exception):
    """The caller's own callback raised @error, which is not to be taken for an error of the connection."""

    def __init__(self, error: Exception) -> None:
        super().__init__(error)
        self.error = error


class Events:
    """An answer that comes as it is made: what is shown goes to @show, and the last event is the result."""

    def __init__(self, show: Callable[[str, Any], None], make: Callable[[Dict[str, Any]], Any]) -> None:
        self._show, self._make = show, make
        self._result: Optional[Dict[str, Any]] = None

    def take(self, event: str, data: Any) -> None:
        if event == "result" and isinstance(data, dict):
            self._result = data
            return
        try:
            self._show(event, data)
        except Exception as error:
            raise CallbackFailed(error) from error

    def result(self, _body: bytes) -> Any:
        if self._result is None:
            raise broken_off()
        return self._make(self._result)


class Question:
    """What the code of a cell asks its caller while it runs: a call of a tool, or input()."""

    def __init__(self, solve: Callable[[], Any], answer: Callable[[Any, Optional[Exception]], Call],
                 is_tool: bool) -> None:
        self.solve = solve    # what it returns may have to be awaited
        self.answer = answer  # the request with that, or with what was raised
        self.is_tool = is_tool


def is_for_code(error: Exception, question: Question, failure: Optional[Exception]) -> bool:
    """Whether what went wrong with an answer can be the answer in its place: it was too long, say."""
    return question.is_tool and failure is None and isinstance(error, ServerError)


class Requests:
    """The methods of both clients. `_do(call)` sends a request and returns what its `parse` makes of the answer;
    `_reply(question, call)` answers what came in the stream of @call."""

    def _do(self, call: Call) -> Any:
        raise NotImplementedError

    def _reply(self, question: Question, call: Call) -> None:
        raise NotImplementedError

    def _in_turn(self, calls: Iterable[Call], join: Callable[[List[Any]], Any]) -> Any:
        """Sends one after the other; what @join makes of their answers."""
        raise NotImplementedError

    def _unless(self, kind: Type[ServerError], call: Call) -> Any:
        """Sends a request; False when it is refused as @kind."""
        raise NotImplementedError

    def _spawn(self, session: "RemoteSession", body: bytes, on_output: Optional[Callable[[str, bytes], Any]],
               streams: bool, listens: bool) -> Any:
        raise NotImplementedError

    def _watch(self, path: str) -> Any:
        raise NotImplementedError

    @staticmethod
    def _find_process(session: "RemoteSession", number: int) -> Any:
        raise NotImplementedError

    def run(self, code: Text, *, on_output: Optional[Callable[[str, bytes], Any]] = None,
            idempotency_key: Optional[str] = None, **options: Any) -> Any:
        """Runs a program; its Result. Options are language, name, args, env, stdin, rich, data_targets, timeout,
        cpu_time and the limits, as `Engine.run()` has them. With @on_output(stream, data) what it prints comes there
        and is not in the result. With @idempotency_key a request that is sent again, as when its connection broke, gets
        the answer of the first one, for ten minutes; it goes on when this client leaves."""
        body, key = run_body(code, **options), check_key(idempotency_key)
        if on_output is None:
            return self._do(Call("POST", "/v1/run", _result, body, key=key))
        show = on_output

        def hear(event: str, data: Any) -> None:
            if event == "output":
                show(data["stream"], data["text"].encode("utf-8", "surrogatepass"))
        events = Events(hear, Result.from_json)
        return self._do(Call("POST", "/v1/run", events.result, body, on_event=events.take, key=key))

    def run_many(self, codes: Iterable[Any], **options: Any) -> Any:
        """All of them, as many at a time as the server gives a batch; a list of Results in the order of @codes. Each is
        a text, or a dict of what `run()` takes. Where one is refused, that is raised."""
        bodies = [run_body(**{**options, **code}) if isinstance(code, dict) else run_body(code, **options)
                  for code in codes]
        return self._in_turn(_batches(bodies), lambda lists: [result for results in lists for result in results])

    def session(self, *, env: Optional[Mapping[str, str]] = None, zygote: Optional[str] = None,
                idle_ms: Optional[int] = None, lifetime_ms: Optional[int] = None,
                max_checkpoints: Optional[int] = None, checkpoint_bytes: Optional[int] = None,
                max_processes: Optional[int] = None, no_interpreter: bool = False, paths: bool = False,
                data_targets: Optional[Iterable[Text]] = None, **limits: Optional[int]) -> Any:
        """Opens a session; a RemoteSession. @max_processes is for `spawn()`, @paths for files by path; @no_interpreter
        has both, and no cells. @data_targets: further names of /mnt/data, such as "/workspace"."""
        numbers = {"idle_ms": idle_ms, "lifetime_ms": lifetime_ms, "max_checkpoints": max_checkpoints,
                   "checkpoint_bytes": checkpoint_bytes, "max_processes": max_processes}
        body: Dict[str, Any] = {name: number for name, number in numbers.items() if number is not None}
        for name, is_asked in (("no_interpreter", no_interpreter), ("paths", paths)):
            if is_asked:
                body[name] = True
        asked = limits_of(limits, _abi.SESSION_LIMIT_NAMES)
        if env is not None:
            body["env"] = dict(env)
        if zygote is not None:
            body["zygote"] = zygote
        if data_targets is not None:
            body["data_targets"] = target_names(data_targets)
        if asked:
            body["limits"] = asked
        return self._do(Call("POST", "/v1/sessions", lambda found: RemoteSession(self, read_object(found)["id"]),
                             json.dumps(body).encode("ascii")))

    def function(self, name: str) -> "RemoteFunction":
        """One of the operator's functions: `client.function("NAME")(event)` is its value. Asks nothing."""
        return RemoteFunction(self, name)

    def functions(self) -> Any:
        """The server's JSON object of each function: its name, its state, and why it is not ready."""
        return self._do(Call("GET", "/v1/functions", lambda found: list(read_object(found)["functions"])))

    def find_session(self, number: str) -> "RemoteSession":
        """One that was opened before, by its id. Asks nothing."""
        return RemoteSession(self, number)


class RemoteFunction:
    """A function on a server. Each call has a sandbox of its own. Of an AsyncClient, what calls return is to be
    awaited."""

    def __init__(self, client: Requests, name: str) -> None:
        self._client = client
        self.name = name

    def __call__(self, event: Any = None, **options: Any) -> Any:
        """What the handler returns to @event, anything that JSON can say. Raises RunError, with all of the result, when
        it does not return. Options are env, variables for this call alone, timeout, cpu_time, the limits, and
        idempotency_key as of a run."""
        return self._ask(lambda found: _result(found).check().value, event, options)

    def call(self, event: Any = None, **options: Any) -> Any:
        """The same; its Result, whatever became of it, with `value`."""
        return self._ask(_result, event, options)

    def _ask(self, parse: Callable[[bytes], Any], event: Any, options: Dict[str, Any]) -> Any:
        key = check_key(options.pop("idempotency_key", None))
        body, kind = call_body(event, **options)
        return self._client._do(Call("POST", "/v1/functions/" + urllib.parse.quote(self.name, safe=""), parse, body,
                                     kind, key=key))


def _batches(bodies: List[bytes]) -> Iterator[Call]:
    """Each has some mebibytes, or one line."""
    begin = 0
    while begin < len(bodies):
        end, size = begin + 1, len(bodies[begin])
        while end < len(bodies) and size + len(bodies[end]) < BATCH_BYTES:
            size += len(bodies[end]) + 1
            end += 1
        parse = functools.partial(read_batch, count=end - begin, make=Result.from_json)
        yield Call("POST", "/v1/batch", parse, b"\n".join(bodies[begin:end]), LINES)
        begin = end


def _result(body: bytes) -> Result:
    return Result.from_text(body, read=read_object)


def _reply(body: bytes) -> Reply:
    found = read_object(body)
    return Reply(found["id"], found["lost"], found["ms"], found["bytes"])


class RemotePaths:
    """The part of a session that is about paths inside; it was opened with paths, max_processes or no_interpreter. A
    path is absolute, or relative to the working directory, and leads where it leads for the programs inside. What is
    answered is the sandbox's word."""

    _client: Requests

    def _path(self, path: str) -> str:
        raise NotImplementedError

    def _at(self, what: str, path: Path, *more: Tuple[str, Any]) -> str:
        """The place of @what, with the paths and options of its query; those that are not asked for are left out."""
        query = ["path=" + urllib.parse.quote(path_bytes(path), safe="/")]
        for name, value in more:
            if value:
                text = b"true" if value is True else value if isinstance(value, bytes) else str(value).encode("ascii")
                query.append("%s=%s" % (name, urllib.parse.quote(text, safe="/")))
        return self._path("/%s?%s" % (what, "&".join(query)))

    def stat(self, path: Path, *, follow: bool = False) -> Any:
        """What lies there, a PathEntry; with @follow what a link at the end of the path leads to."""
        return self._client._do(Call("GET", self._at("stat", path, ("follow", follow)),
                                     lambda found: first_entry(read_object(found))))

    def list(self, path: Path = ".", *, depth: int = 1, max_entries: int = 0) -> Any:
        """What is in a directory, and to @depth below it, 32 at most; a PathList."""
        return self._client._do(Call("GET", self._at("list", path, ("depth", depth), ("max_entries", max_entries)),
                                     lambda found: entries(read_object(found))))

    def make_directory(self, path: Path, *, parents: bool = False, mode: int = 0o755) -> Any:
        """With @parents those on the way are made, too, and one that is there is no error: then False."""
        where = self._at("make_directory", path, ("parents", parents), ("mode", "%o" % mode))
        return self._client._do(Call("POST", where, lambda found: not read_object(found)["existed"]))

    def rename(self, path: Path, to: Path, *, parents: bool = False) -> Any:
        """As rename(2); with @parents directories on the way to the new name are made."""
        where = self._at("rename", path, ("to", path_bytes(to, "to")), ("parents", parents))
        return self._client._do(Call("POST", where, nothing))

    def remove(self, path: Path, *, tree: bool = False) -> Any:
        """A file, a link, or an empty directory; with @tree all that is in it, too."""
        return self._client._do(Call("DELETE", self._at("files", path, ("tree", tree)), nothing))

    def read_path(self, path: Path, to: Optional[BinaryIO] = None, *, max_bytes: int = MAX_BYTES) -> Any:
        """What is in a file; with @to it is written there, and b"" is returned. More than @max_bytes is an error."""
        gathered = Gathered(to, max_bytes)
        return self._client._do(Call("GET", self._at("files", path), lambda _: gathered.value(), to=cast(
            BinaryIO, gathered)))

    def write_path(self, path: Path, content: Union[Text, BinaryIO], *, mode: int = 0o644) -> Any:
        """Writes a file: a text, bytes, or what is left of a binary file. Directories on the way are made. @mode is for
        a file that is new."""
        data = content.read() if hasattr(content, "read") else source(content)
        return self._client._do(Call("PUT", self._at("files", path, ("mode", "%o" % mode)), nothing, data, BYTES))

    def watch(self, path: Path = ".") -> Any:
        """Tells what changes in a directory, and not below it, from the moment when it is answered: a RemoteWatch, or
        of an AsyncClient, once awaited, an AsyncRemoteWatch."""
        return self._client._watch(self._at("watch", path))


class RemoteSession(RemotePaths):
    """A session on a server. Of an AsyncClient, what the methods return is to be awaited, and `async with` closes
    it."""

    def __init__(self, client: Requests, number: str) -> None:
        self._client = client
        self.id = number

    def __enter__(self) -> "RemoteSession":
        return self

    def __exit__(self, *_: Any) -> None:
        try:
            self.close()
        except ServerError as error:
            if error.status != 404:  # it has ended meanwhile
                raise

    async def __aenter__(self) -> "RemoteSession":
        return self

    async def __aexit__(self, *_: Any) -> None:
        try:
            await self.close()
        except ServerError as error:
            if error.status != 404:
                raise

    def _ask(self, method: str, path: str, parse: Callable[[bytes], Any], body: Optional[Dict[str, Any]] = None) -> Any:
        text = json.dumps(body).encode("ascii") if body is not None else None
        return self._client._do(Call(method, self._path(path), parse, text))

    def _path(self, path: str) -> str:
        return "/v1/sessions/%s%s" % (urllib.parse.quote(self.id, safe=""), path)

    def run(self, code: Text, *, context: Optional[str] = None, timeout: Optional[float] = None, silent: bool = False,
            store_history: bool = True, env: Optional[Mapping[str, str]] = None, cwd: Optional[str] = None,
            wants_value: bool = False, stop_on_error: bool = False,
            on_output: Optional[Callable[[Output], Any]] = None,
            on_input: Optional[Callable[[str, bool], Any]] = None, tools: Optional[Tools] = None) -> Any:
        """Executes a cell; its CellResult. Options are as `Session.run()` has them. on_output(output) hears what is
        shown as it comes; on_input(prompt, is_password) and tools={"name": function} answer what the code asks, with
        an AsyncClient as coroutines, too. A Client answers one after the other."""
        body: Dict[str, Any] = {"code": code.decode("utf-8") if isinstance(code, bytes) else code}
        if context is not None:
            body["context"] = context
        if timeout is not None:
            body["timeout_ms"] = milliseconds(timeout, "timeout")
        if silent:
            body["silent"] = True
        if not store_history:
            body["no_history"] = True
        if env is not None:
            body["env"] = dict(env)
        if cwd is not None:
            body["cwd"] = cwd
        for key, value in (("wants_value", wants_value), ("stop_on_error", stop_on_error),
                           ("allow_input", on_input is not None)):
            if value:
                body[key] = True
        if tools:
            body["calls"] = list(tools)
        if on_output is None and on_input is None and not tools:
            return self._ask("POST", "/cells", lambda found: CellResult.from_json(read_object(found)), body)
        def hear(event: str, data: Any) -> None:
            if event == "call":
                self._client._reply(self._called(data, tools or {}), call)
            elif event == "input" and on_input is not None:
                self._client._reply(self._asked(data, on_input), call)
            elif on_output is not None and event == "output":
                on_output(Output("stream", stream=data["stream"], text=data["text"]))
            elif on_output is not None and event in SHOWN:
                on_output(Output(event, data=data))
        events = Events(hear, CellResult.from_json)
        call = Call("POST", self._path("/cells"), events.result, json.dumps(body).encode("ascii"),
                    on_event=events.take)
        return self._client._do(call)

    def _called(self, data: Dict[str, Any], tools: Tools) -> Question:
        def answer(value: Any, error: Optional[Exception]) -> Call:
            text, is_error = encode(data["name"], value) if error is None else encode_error(error)
            body = '{"%s": %s}' % ("error" if is_error else "value", text)
            return Call("POST", self._path("/calls/%d" % data["id"]), nothing, body.encode("ascii"))
        return Question(lambda: call_tool(tools, data["name"], data["arguments"]), answer, True)

    def _asked(self, data: Dict[str, Any], on_input: Callable[[str, bool], Any]) -> Question:
        def answer(value: Any, error: Optional[Exception]) -> Call:
            body = {"text": None if error is not None or value is None else str(value)}
            return Call("POST", self._path("/input"), nothing, json.dumps(body).encode("ascii"))
        return Question(lambda: on_input(data["prompt"], data["password"]), answer, False)

    def info(self) -> Any:
        """The JSON object of docs/sessions.md: state, times, memory, contexts, checkpoints, branches; and what the
        server has beside it, such as `id`."""
        def parse(found: bytes) -> Dict[str, Any]:
            answer = read_object(found)
            return {**answer, **(answer.pop("now", None) or {})}
        return self._ask("GET", "", parse)

    def pause(self) -> Any:
        """All its processes stand still, and so do the clocks of its cell and of its idleness; memory is kept."""
        return self._ask("POST", "/pause", nothing)

    def resume(self) -> Any:
        return self._ask("POST", "/resume", nothing)

    def set_lifetime(self, *, idle: Optional[float] = None, lifetime: Optional[float] = None) -> Any:
        """Seconds from now: it is closed after @idle without a cell, and after @lifetime. None: stays as it is."""
        times = {"idle_ms": milliseconds(idle, "idle"), "lifetime_ms": milliseconds(lifetime, "lifetime")}
        return self._ask("POST", "/lifetime", nothing, {name: number for name, number in times.items() if number})

    # --- questions to the shell, in the words of Jupyter's protocol

    def _ask_shell(self, name: str, code: Text, **options: Any) -> Any:
        body = {"code": code.decode("utf-8") if isinstance(code, bytes) else code}
        body.update((key, value) for key, value in options.items() if value is not None)
        return self._ask("POST", "/" + name, read_object, body)

    def complete(self, code: Text, cursor: Optional[int] = None, *, context: Optional[str] = None) -> Any:
        """What may stand at @cursor, code points from the begin, None: the end. Waits its turn, as a cell does."""
        return self._ask_shell("complete", code, cursor=cursor, context=context)

    def inspect(self, code: Text, cursor: Optional[int] = None, *, context: Optional[str] = None,
                detail: bool = False) -> Any:
        """What is known of the name at @cursor; with @detail its source, too."""
        return self._ask_shell("inspect", code, cursor=cursor, context=context, detail=int(detail))

    def is_complete(self, code: Text, *, context: Optional[str] = None) -> Any:
        """Whether a cell with this code can be executed, or more has to come."""
        return self._ask_shell("is_complete", code, context=context)

    # --- processes beside the cells; the session was opened with max_processes or no_interpreter

    def spawn(self, command: Union[str, Iterable[Text]], *, on_output: Optional[Callable[[str, bytes], Any]] = None,
              stream: bool = False, **options: Any) -> Any:
        """Starts a program: a text for the shell, or a program and its arguments; a RemoteProcess, or of an
        AsyncClient, once awaited, an AsyncRemoteProcess. env, cwd, stdin (whether it has one), terminal=(rows,
        columns), timeout in seconds, output_bytes. What it prints goes to @on_output(stream, data), or with @stream to
        who iterates. It outlives this client, unless with end_with_client=True it is killed when the one that listens
        has left."""
        listens = stream or on_output is not None or bool(options.get("end_with_client"))
        return self._client._spawn(self, process_body(command, **options), on_output, stream, listens)

    def processes(self) -> Any:
        """Those that run or wait, as hutch_session_processes() has them."""
        return self._ask("GET", "/processes", lambda found: read_object(found)["processes"])

    def find_process(self, number: int) -> Any:
        """One that was begun before, by its id. Asks nothing. To wait for its end, or to iterate, is to listen to it,
        which one client does at a time."""
        return self._client._find_process(self, number)

    def interrupt(self) -> Any:
        """KeyboardInterrupt in the cell that runs. False when there is none."""
        return self._ask("POST", "/interrupt", lambda found: bool(read_object(found).get("interrupted")))

    def reply(self, text: Optional[str]) -> Any:
        """Answers input(); None ends the input. False when none waits. `on_input` is the usual way."""
        body = json.dumps({"text": text}).encode("ascii")
        return self._client._unless(ServerConflictError, Call("POST", self._path("/input"), lambda _: True, body))

    def restart(self) -> Any:
        return self._ask("POST", "/restart", nothing)

    def reset_context(self, context: str = "main") -> Any:
        """It loses its variables, In, Out and count."""
        return self._ask("POST", "/contexts/%s/reset" % urllib.parse.quote(context, safe=""), nothing)

    def drop_context(self, context: str) -> Any:
        """It is gone, and is made anew when it is named again."""
        return self._ask("DELETE", "/contexts/" + urllib.parse.quote(context, safe=""), nothing)

    def close(self) -> Any:
        return self._ask("DELETE", "", nothing)

    def checkpoint(self) -> Any:
        """A Reply; its `id` is for `rollback()`."""
        return self._ask("POST", "/checkpoints", _reply)

    def rollback(self, checkpoint: int) -> Any:
        return self._ask("POST", "/rollback", _reply, {"checkpoint": checkpoint})

    def fork(self) -> Any:
        """A Reply; its `id` is for `switch()`."""
        return self._ask("POST", "/branches", _reply)

    def switch(self, branch: int = 0) -> Any:
        return self._ask("POST", "/switch", _reply, {"branch": branch})

    def drop(self, checkpoint_or_branch: int) -> Any:
        return self._ask("DELETE", "/checkpoints/%d" % checkpoint_or_branch, _reply)

    # --- files below /mnt/data

    def _file(self, name: Path) -> str:
        return self._path("/files/" + urllib.parse.quote(os.fsencode(name), safe="/"))

    def files(self) -> Any:
        """A list of FileEntry."""
        def parse(found: bytes) -> List[FileEntry]:
            return [FileEntry.from_json(entry) for entry in read_object(found)["files"]]
        return self._ask("GET", "/files", parse)

    def upload(self, name: Path, content: Union[Text, BinaryIO]) -> Any:
        """Writes a file: a text, bytes, or what is left of a binary file."""
        data = content.read() if hasattr(content, "read") else source(content)
        return self._client._do(Call("PUT", self._file(name), nothing, data, BYTES))

    def download(self, name: Path, to: Optional[BinaryIO] = None, max_bytes: Optional[int] = None) -> Any:
        """The contents of a file; with @to they are written there as they come, and b"" is returned. More than
        @max_bytes is an error."""
        if max_bytes is None:
            return self._client._do(Call("GET", self._file(name), bytes, to=to))
        gathered = Gathered(to, max_bytes)
        return self._client._do(Call("GET", self._file(name), lambda _: gathered.value(), to=cast(BinaryIO, gathered)))

    def delete_file(self, name: Path) -> Any:
        return self._client._do(Call("DELETE", self._file(name), nothing))
