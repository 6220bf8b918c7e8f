"""A context manager with the face of llm-sandbox's: `from hutch.llm_sandbox import SandboxSession`.

Each `run()` is a program in a fresh sandbox; what it leaves in /mnt/data, where it starts, is there for the next. There
is no container: `image` is an image of hutch's store, and what an image lacks cannot be installed."""
from __future__ import annotations

import ctypes
import os
import shlex
import shutil
import tempfile
from dataclasses import dataclass
from typing import Any, BinaryIO, List, Optional

from . import _abi, _library, blocking
from .blocking import BlockingEngine
from .errors import EngineError, make_error

LANGUAGES = {"python": "python", "javascript": "js", "ruby": "ruby", "r": "r", "bash": "bash", "shell": "sh"}
PLACES = ("/sandbox", "/mnt/data")  # what paths inside begin with: the same directory
NAMES_MAX = 100


@dataclass(frozen=True)
class ConsoleOutput:
    exit_code: int = 0
    stderr: str = ""
    stdout: str = ""

    @property
    def text(self) -> str:
        return self.stdout

    def success(self) -> bool:
        return self.exit_code == 0


class SandboxSession:
    """`with SandboxSession(lang="python") as session: session.run("print(1)").stdout`."""

    def __init__(self, image: Optional[str] = None, lang: str = "python", keep_template: bool = False,
                 verbose: bool = False,
                 *, engine: Optional[BlockingEngine] = None, timeout: Optional[float] = None, **_others: Any) -> None:
        language = LANGUAGES.get(str(getattr(lang, "value", lang)).lower())
        if language is None:
            raise EngineError("'%s' is no language of this package: there are %s" % (lang,
                                                                                     ", ".join(sorted(LANGUAGES))))
        self._image, self._language, self._timeout = image, language, timeout
        self._engine, self._is_own = engine, False
        self._directory: Optional[str] = None

    def __enter__(self) -> "SandboxSession":
        self.open()
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def open(self) -> None:
        if self._directory is not None:
            return
        if self._engine is None and self._image is not None:
            self._engine, self._is_own = BlockingEngine(image=self._image), True
        self._directory = tempfile.mkdtemp(prefix="hutch-session.")

    def close(self) -> None:
        """The files go, too."""
        directory, self._directory = self._directory, None
        if directory is not None:
            _remove(directory)
        if self._is_own and self._engine is not None:
            self._engine.close()
            self._engine, self._is_own = None, False

    def _place(self) -> str:
        if self._directory is None:
            raise EngineError("the session is not open: use it in a `with`, or call open()")
        return self._directory

    def run(self, code: str, libraries: Optional[List[str]] = None, timeout: Optional[float] = None) -> ConsoleOutput:
        """A program, in the session's language. @libraries: has to be there already."""
        if libraries:
            self.install(libraries)
        return self._run(code, self._language, timeout)

    def execute_command(self, command: str, workdir: Optional[str] = None) -> ConsoleOutput:
        """A line for the shell."""
        if workdir is not None:
            command = "cd %s && { %s\n}" % (shlex.quote("/mnt/data/" + self._below(workdir)), command)
        return self._run(command, "sh", None)

    def _run(self, code: str, language: str, timeout: Optional[float]) -> ConsoleOutput:
        place = self._place()  # before an engine is opened: there is none for a session that is not open
        engine = self._engine or blocking.default_engine()
        result = engine.run(code, language=language, data_dir=place, timeout=timeout or self._timeout)
        stderr, exit_code = result.stderr, result.exit_code
        if result.verdict not in ("ok", "error"):
            stderr += "\nhutch: %s" % result.message if stderr else "hutch: %s" % result.message
            exit_code = exit_code or {"timeout": 124, "cpu_time": 124}.get(result.verdict, 125)
        return ConsoleOutput(128 if exit_code is None or exit_code < 0 else exit_code, stderr, result.stdout)

    def install(self, libraries: Optional[List[str]] = None) -> None:
        """Nothing is installed in a sandbox: raises, unless the image has all of it."""
        for name in libraries or ():
            module = name.split("=")[0].split("[")[0].strip().replace("-", "_")
            if self._language != "python" or not module.isidentifier() or not self._run(
                    "import importlib.util, sys\nsys.exit(importlib.util.find_spec(%r) is None)" % module, "python",
                    None).success():
                raise EngineError("the image has no library '%s', and nothing is installed in a sandbox: make an image "
                                  "that has it (docs/images.md)" % name)

    # --- files. Those inside belong to foreign code: no link of its making is followed on this machine.

    def _below(self, path: str) -> str:
        for place in PLACES:
            if path == place or path.startswith(place + "/"):
                path = path[len(place):]
                break
        else:
            if path.startswith("/"):
                raise EngineError("'%s' is not below %s" % (path, " or ".join(PLACES)))
        parts = [part for part in path.split("/") if part not in ("", ".")]
        if ".." in parts or len(parts) > NAMES_MAX:
            raise EngineError("'%s' leaves the directory of the session" % path)
        return "/".join(parts)

    def copy_to_runtime(self, src: str, dest: str) -> None:
        with open(src, "rb") as source, self._open_inside(dest, True) as target:
            shutil.copyfileobj(source, target)

    def copy_from_runtime(self, src: str, dest: str) -> None:
        with self._open_inside(src, False) as source, open(dest, "wb") as target:
            shutil.copyfileobj(source, target)

    def _open_inside(self, path: str, is_new: bool) -> BinaryIO:
        name = _abi.plain(os.fsencode(self._below(path)), "the name of a file")
        place, why = self._place(), _abi.Error()
        if not name:
            raise EngineError("'%s' is a directory" % path)
        engine = self._engine or blocking.default_engine()
        at = os.open(place, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fd = _library.load(engine._library_path).dir_open_file(at, name, os.O_WRONLY if is_new else os.O_RDONLY,
                                                                   ctypes.byref(why))
        finally:
            os.close(at)
        if fd < 0:
            raise make_error(why.message.decode("utf-8", "replace"), why.code)
        return os.fdopen(fd, "wb" if is_new else "rb")


def _remove(directory: str) -> None:
    """Whatever modes foreign code has given to what is in it. rmtree() follows no link."""
    def open_up(_function: Any, path: str, _info: Any) -> None:
        parent = os.path.dirname(path)
        for name in (parent, path):
            if os.path.isdir(name) and not os.path.islink(name):
                os.chmod(name, 0o700)
        try:
            os.unlink(path)
        except OSError:
            shutil.rmtree(path, ignore_errors=True)
    shutil.rmtree(directory, onerror=open_up)
