"""What can be asked of `hutch serve`: the same for `Client`, whose methods return answers, and for `AsyncClient`, whose
methods return awaitables of them."""
from __future__ import annotations

import json
import os
import urllib.parse
from typing import Any, BinaryIO, Callable, Dict, List, Mapping, Optional, Union

from . import _abi
from ._wire import BYTES, Call, ServerError, broken_off, call_body, limits_of, read_object, run_body
from .options import Path, Text, milliseconds, source
from .results import CellResult, FileEntry, Output, Reply, Result
from .tools import Tools, call as call_tool, encode, encode_error

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


class Requests:
    """The methods of both clients. `_do(call)` sends a request and returns what its `parse` makes of the answer;
    `_reply(question, call)` answers what came in the stream of @call."""

    def _do(self, call: Call) -> Any:
        raise NotImplementedError

    def _reply(self, question: Question, call: Call) -> None:
        raise NotImplementedError

    def run(self, code: Text, *, on_output: Optional[Callable[[str, bytes], Any]] = None, **options: Any) -> Any:
        """Runs a program; its Result. Options are language, name, args, env, stdin, rich, timeout, cpu_time and the
        limits, as `Engine.run()` has them. With @on_output(stream, data) what it prints comes there and is not in the
        result."""
        body = run_body(code, **options)
        if on_output is None:
            return self._do(Call("POST", "/v1/run", _result, body))
        show = on_output

        def hear(event: str, data: Any) -> None:
            if event == "output":
                show(data["stream"], data["text"].encode("utf-8", "surrogatepass"))
        events = Events(hear, Result.from_json)
        return self._do(Call("POST", "/v1/run", events.result, body, on_event=events.take))

    def session(self, *, env: Optional[Mapping[str, str]] = None, zygote: Optional[str] = None,
                idle_ms: Optional[int] = None, lifetime_ms: Optional[int] = None,
                max_checkpoints: Optional[int] = None, checkpoint_bytes: Optional[int] = None,
                **limits: Optional[int]) -> Any:
        """Opens a session; a RemoteSession."""
        numbers = {"idle_ms": idle_ms, "lifetime_ms": lifetime_ms, "max_checkpoints": max_checkpoints,
                   "checkpoint_bytes": checkpoint_bytes}
        body: Dict[str, Any] = {name: number for name, number in numbers.items() if number is not None}
        asked = limits_of(limits, _abi.SESSION_LIMIT_NAMES)
        if env is not None:
            body["env"] = dict(env)
        if zygote is not None:
            body["zygote"] = zygote
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
        it does not return. Options are env, variables for this call alone, timeout, cpu_time and the limits."""
        return self._ask(lambda found: _result(found).check().value, event, options)

    def call(self, event: Any = None, **options: Any) -> Any:
        """The same; its Result, whatever became of it, with `value`."""
        return self._ask(_result, event, options)

    def _ask(self, parse: Callable[[bytes], Any], event: Any, options: Dict[str, Any]) -> Any:
        body, kind = call_body(event, **options)
        return self._client._do(Call("POST", "/v1/functions/" + urllib.parse.quote(self.name, safe=""), parse, body,
                                     kind))


def _result(body: bytes) -> Result:
    return Result.from_text(body, read=read_object)


def _reply(body: bytes) -> Reply:
    found = read_object(body)
    return Reply(found["id"], found["lost"], found["ms"], found["bytes"])


def _nothing(_body: bytes) -> None:
    return None


class RemoteSession:
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
            return Call("POST", self._path("/calls/%d" % data["id"]), _nothing, body.encode("ascii"))
        return Question(lambda: call_tool(tools, data["name"], data["arguments"]), answer, True)

    def _asked(self, data: Dict[str, Any], on_input: Callable[[str, bool], Any]) -> Question:
        def answer(value: Any, error: Optional[Exception]) -> Call:
            body = {"text": None if error is not None or value is None else str(value)}
            return Call("POST", self._path("/input"), _nothing, json.dumps(body).encode("ascii"))
        return Question(lambda: on_input(data["prompt"], data["password"]), answer, False)

    def info(self) -> Any:
        """The server's JSON object: times, and how many cells wait."""
        return self._ask("GET", "", read_object)

    def interrupt(self) -> Any:
        """KeyboardInterrupt in the cell that runs. False when there is none."""
        return self._ask("POST", "/interrupt", lambda found: bool(read_object(found).get("interrupted")))

    def restart(self) -> Any:
        return self._ask("POST", "/restart", _nothing)

    def reset_context(self, context: str = "main") -> Any:
        """It loses its variables, In, Out and count."""
        return self._ask("POST", "/contexts/%s/reset" % urllib.parse.quote(context, safe=""), _nothing)

    def drop_context(self, context: str) -> Any:
        """It is gone, and is made anew when it is named again."""
        return self._ask("DELETE", "/contexts/" + urllib.parse.quote(context, safe=""), _nothing)

    def close(self) -> Any:
        return self._ask("DELETE", "", _nothing)

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
        return self._client._do(Call("PUT", self._file(name), _nothing, data, BYTES))

    def download(self, name: Path, to: Optional[BinaryIO] = None) -> Any:
        """The contents of a file; with @to they are written there as they come, and b"" is returned."""
        return self._client._do(Call("GET", self._file(name), bytes, to=to))

    def delete_file(self, name: Path) -> Any:
        return self._client._do(Call("DELETE", self._file(name), _nothing))
