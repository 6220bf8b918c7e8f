"""What both clients of `hutch serve` share: addresses, bodies, errors and events."""
from __future__ import annotations

import asyncio
import base64
import errno
import json
import os
import re
import urllib.parse
from dataclasses import dataclass, field
from typing import Any, BinaryIO, Callable, Dict, Iterable, List, Mapping, NamedTuple, Optional, Tuple, Union

from . import _abi
from .errors import BusyError, EngineError, NotFoundError
from .options import Text, milliseconds

JSON, LINES, BYTES = "application/json", "application/x-ndjson", "application/octet-stream"
CALL = "application/vnd.hutch.call+json"
OnEvent = Callable[[str, Any], None]
MAX_LINE = 64 << 10
MAX_HEADERS = 100
MAX_PIECE = 64 << 20  # of an answer that comes in chunks: one line of it, and so one event
BROKEN = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")  # what no header may have in it
STATUS = re.compile(rb"HTTP/1\.(\d) (\d{3})(?: |$)")

CODES = {400: errno.EINVAL, 401: errno.EACCES, 403: errno.EACCES, 404: errno.ENOENT, 408: errno.ETIMEDOUT,
         413: errno.EFBIG, 429: errno.EAGAIN}


class ServerError(EngineError):
    """The server refused a request. `status` is HTTP's, `reason` a word that does not
    change its meaning."""

    status = 0
    reason = ""
    hint: Optional[str] = None
    retry_after: Optional[float] = None  # seconds


class ServerBusyError(ServerError, BusyError):
    """The queue is full, or the token's share of it."""


class ServerNotFoundError(ServerError, NotFoundError):
    """There is no such thing, or it is not this token's."""


class ConnectError(EngineError):
    """The server cannot be reached, or the connection broke before the answer was there."""


class ServerConflictError(ServerError):
    """A session cannot follow the order now: there is no such checkpoint, or no cell has run yet."""


@dataclass(frozen=True)
class Call:
    """One request, and what is made of its answer."""

    method: str
    path: str
    parse: Callable[[bytes], Any]
    body: Optional[bytes] = None
    content_type: str = JSON
    on_event: Optional[OnEvent] = None  # the answer is asked for as it is made: lines of {"event", "data"}
    to: Optional[BinaryIO] = None       # the answer goes there
    key: Optional[str] = None           # by which the server knows a request that is sent again
    tasks: "List[asyncio.Task[None]]" = field(default_factory=list)  # of AsyncClient, as long as it is under way
    failures: List[Exception] = field(default_factory=list)          # … of those tasks, raised when it is over
    abort: List[Callable[[], None]] = field(default_factory=list)    # … one that ends it

    @property
    def headers(self) -> Dict[str, str]:
        found = {"Accept": LINES if self.on_event else "*/*" if self.to else JSON}
        if self.body is not None:
            found["Content-Type"] = self.content_type
        if self.key is not None:
            found["Idempotency-Key"] = self.key
        return found


class Address(NamedTuple):
    text: str
    path: Optional[str]  # of a unix socket
    host: str
    port: int


def read_address(text: Optional[str]) -> Address:
    """"unix:PATH", "HOST:PORT" or "http://HOST:PORT". None: $HUTCH_SERVER, else the usual socket of `hutch serve`."""
    if text is None:
        text = os.environ.get("HUTCH_SERVER") or None
    if text is None:
        runtime = os.environ.get("XDG_RUNTIME_DIR")
        if not runtime:
            raise ValueError("no address is given, and XDG_RUNTIME_DIR, below which hutch serve has its socket, is "
                             "not set")
        text = "unix:" + os.path.join(runtime, "hutch", "hutch.sock")
    if text.startswith("unix:"):
        return Address(text, text[len("unix:"):], "localhost", 0)
    parts = urllib.parse.urlsplit(text if "://" in text else "http://" + text)
    if parts.scheme != "http" or not parts.hostname or not parts.port or parts.path not in ("", "/"):
        raise ValueError("'%s' is no address of a server: it can be unix:PATH, HOST:PORT or http://HOST:PORT" % text)
    return Address(text, None, parts.hostname, parts.port)


def make_head(address: Address, call: Call, more: Mapping[str, str]) -> bytes:
    """A request up to its body. @more: headers that every request has."""
    host = address.host
    if address.path is None:
        host = "%s:%d" % ("[%s]" % host if ":" in host else host, address.port)
    headers = {"Host": host, **more, **call.headers}
    if call.body is not None or call.method in ("POST", "PUT"):
        headers["Content-Length"] = str(len(call.body or b""))
    lines = ["%s %s HTTP/1.1" % (call.method, call.path)] + ["%s: %s" % pair for pair in headers.items()]
    if any(BROKEN.search(line) for line in lines):
        raise ValueError("a header of the request would be more than one, or has a control character in it")
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


def read_status(line: bytes) -> Tuple[int, bool]:
    """The status, and whether it is HTTP/1.0 that answers."""
    found = STATUS.match(line)
    if found is None:
        raise ValueError("what answers there does not speak HTTP/1.1")
    return int(found.group(2)), found.group(1) == b"0"


def read_header(line: bytes, headers: Dict[str, str]) -> None:
    """Into @headers, by names in lower case."""
    name, _, value = line.decode("latin-1").partition(":")
    headers[name.strip().lower()] = value.strip()
    if len(headers) > MAX_HEADERS:
        raise ValueError("the answer has more than %d headers" % MAX_HEADERS)


def check_coding(headers: Mapping[str, str]) -> None:
    if headers["transfer-encoding"].lower() != "chunked":
        raise ValueError("the answer comes as '%s'" % headers["transfer-encoding"])


def read_length(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise ValueError("the answer has the length '%s'" % text)
    return int(text)


def read_chunk_size(line: bytes) -> int:
    text = line.split(b";")[0].strip()
    if not text.isalnum():  # int() takes more
        raise ValueError("a chunk of the answer has no length")
    return int(text, 16)


def take_lines(found: bytearray, on_event: OnEvent) -> bytearray:
    """Tells of the lines that are whole. What is left."""
    end = found.rfind(b"\n")
    if end < 0:
        if len(found) > MAX_PIECE:
            raise ValueError("an event of more than %d bytes" % MAX_PIECE)
        return found
    for line in bytes(found[:end]).split(b"\n"):
        read_line(line, on_event)
    return found[end + 1:]


def target_names(targets: Iterable[Text]) -> List[str]:
    """Further names of /mnt/data."""
    if isinstance(targets, (str, bytes)):
        raise TypeError("data_targets is one text and not a list of them")
    return [_plain(target) for target in targets]


def run_body(code: Text, *, language: Optional[str] = None, name: Optional[str] = None,
             args: Optional[Iterable[str]] = None, env: Optional[Mapping[str, str]] = None,
             stdin: Optional[Text] = None, rich: bool = False, timeout: Optional[float] = None,
             cpu_time: Optional[float] = None, data_targets: Optional[Iterable[Text]] = None,
             **limits: Optional[int]) -> bytes:
    """The body of POST /v1/run. The rest of what a run can be asked for is the operator's to say."""
    body: Dict[str, Any] = {"code": code.decode("utf-8") if isinstance(code, bytes) else code}
    for key, value in (("language", language), ("name", name)):
        if value is not None:
            body[key] = value
    if args is not None:
        body["args"] = list(args)
    if env is not None:
        body["env"] = dict(env)
    if isinstance(stdin, bytes):
        body["stdin_base64"] = base64.b64encode(stdin).decode("ascii")
    elif stdin is not None:
        body["stdin"] = stdin
    if rich:
        body["rich"] = True
    if data_targets is not None:
        body["data_targets"] = target_names(data_targets)
    times = {"wall_ms": milliseconds(timeout, "timeout"), "cpu_ms": milliseconds(cpu_time, "cpu_time")}
    asked = limits_of({**times, **limits}, _abi.LIMIT_NAMES)
    if asked:
        body["limits"] = asked
    return json.dumps(body).encode("ascii")


def call_body(event: Any, *, env: Optional[Mapping[str, str]] = None, timeout: Optional[float] = None,
              cpu_time: Optional[float] = None, **limits: Optional[int]) -> Tuple[bytes, str]:
    """The body of POST /v1/functions/NAME and its type: the event alone, or with what is for this call only."""
    times = {"wall_ms": milliseconds(timeout, "timeout"), "cpu_ms": milliseconds(cpu_time, "cpu_time")}
    asked = limits_of({**times, **limits}, _abi.LIMIT_NAMES)
    if env is None and not asked:
        return json.dumps(event, allow_nan=False).encode("ascii"), JSON
    body: Dict[str, Any] = {"event": event}
    if env is not None:
        body["env"] = dict(env)
    if asked:
        body["limits"] = asked
    return json.dumps(body, allow_nan=False).encode("ascii"), CALL


def process_body(command: Union[str, Iterable[Text]], *, env: Optional[Mapping[str, str]] = None,
                 cwd: Optional[Text] = None, stdin: bool = False, terminal: Optional[Tuple[int, int]] = None,
                 timeout: Optional[float] = None, output_bytes: int = 0, end_with_client: bool = False) -> bytes:
    """The body of POST /v1/sessions/ID/processes."""
    if isinstance(command, bytes):
        raise TypeError("a command is one text, or a list of them")
    body: Dict[str, Any] = {"shell": command} if isinstance(command, str) else {"args": [_plain(w) for w in command]}
    if env is not None:
        body["env"] = dict(env)
    if cwd is not None:
        body["cwd"] = _plain(cwd)
    if terminal is not None:
        body["terminal"] = {"rows": terminal[0], "cols": terminal[1]}
    for key, value in (("stdin", stdin), ("end_with_client", end_with_client)):
        if value:
            body[key] = True
    for key, number in (("wall_ms", milliseconds(timeout, "timeout")), ("output_bytes", output_bytes)):
        if number:
            body[key] = number
    return json.dumps(body).encode("ascii")


def _plain(text: Text) -> str:
    return text.decode("utf-8") if isinstance(text, bytes) else text


def check_key(key: Optional[str]) -> Optional[str]:
    """It is part of the head of a request, so nothing may be in it that ends a line."""
    if key is not None and not (0 < len(key) < 256 and all("!" <= letter <= "~" for letter in key)):
        raise ValueError("idempotency_key is %r: it has 1 to 255 visible characters of ASCII" % key)
    return key


def read_batch(body: bytes, count: int, make: Callable[[Dict[str, Any]], Any]) -> List[Any]:
    """The answers of a batch of @count lines in their order; the first that was refused is raised."""
    found: Dict[int, Dict[str, Any]] = {}
    for line in body.split(b"\n"):
        if line:
            answer = read_object(line)
            found[answer["line"]] = answer
    for number in sorted(found):
        if "error" in found[number]:
            error = {"error": found[number]["error"]}
            raise make_error(error["error"]["status"], {}, json.dumps(error).encode("ascii"))
    if len(found) != count:
        raise broken_off()
    return [make(found[number]["result"]) for number in sorted(found)]


def nothing(_answer: Any) -> None:
    return None


def make_error(status: int, headers: Mapping[str, str], body: bytes) -> ServerError:
    """@headers: by names in lower case."""
    try:
        told = json.loads(body)["error"]
        sentence, reason, hint = str(told["message"]), str(told["code"]), told.get("hint")
    except (ValueError, KeyError, TypeError, AttributeError):
        sentence, reason, hint = "the server answered with status %d" % status, "", None
    kind = {404: ServerNotFoundError, 409: ServerConflictError, 429: ServerBusyError}.get(status, ServerError)
    error = kind(sentence, CODES.get(status, errno.EIO))
    error.status, error.reason, error.hint = status, reason, hint
    retry = headers.get("retry-after", "")
    error.retry_after = float(retry) if retry.isdigit() else None
    return error


def limits_of(given: Mapping[str, Optional[int]], names: Iterable[str]) -> Dict[str, int]:
    """Those that were asked for; another key is the caller's mistake."""
    for key in given:
        if key not in names:
            raise TypeError("there is no option '%s' of this on a server" % key)
    return {key: number for key, number in given.items() if number}


def read_object(body: bytes) -> Dict[str, Any]:
    """An answer that has to be a JSON object."""
    try:
        found = json.loads(body)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise ConnectError("the server's answer is no JSON object: is it hutch that listens there?", errno.EPROTO)
    return found


def read_line(line: bytes, on_event: OnEvent) -> None:
    if line.strip():
        event = read_object(line)
        on_event(str(event.get("event")), event.get("data"))


def broken_off() -> ConnectError:
    return ConnectError("the connection was broken off before the result had come", errno.ECONNRESET)
