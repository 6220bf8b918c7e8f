"""hutch runs code that nobody has read in fresh, locked-down sandboxes that are kept warm.

    import hutch
    print(hutch.run("print(6 * 7)").stdout)

`Engine` is libhutch in an asyncio loop, `BlockingEngine` the same for programs without one, `hutch.run()` and
`hutch.session()` use one that is opened when it is first needed. docs/clients.md of the source tree is the manual."""
from ._wire import ConnectError, ServerBusyError, ServerConflictError, ServerError, ServerNotFoundError
from .async_client import AsyncClient
from .blocking import BlockingEngine, BlockingSession, configure, default_engine, run, run_many, session
from .blocking_parts import BlockingFunction, BlockingProcess, BlockingWatch
from .client import Client
from .engine import Engine, Run
from .errors import BusyError, ClosedError, EngineError, HutchError, LibraryError, NotFoundError, RunError
from .functions import Function
from .options import NO_LIMIT, Limits, Stats, Zygote, ZygoteStats
from .paths import Change, PathEntry, PathList
from .remote import RemoteFunction, RemoteSession
from .remote_parts import AsyncRemoteProcess, AsyncRemoteWatch, RemoteProcess, RemoteWatch
from .results import (CellError, CellResult, Ended, FileEntry, Files, Layer, Limit, Output, ProcessEnd, ProgramError,
                      Reply, Result, Timings, Usage)
from .session_paths import Watch
from .sessions import Cell, Process, Session

__version__ = "0.1.0"
__all__ = [
    "AsyncClient", "AsyncRemoteProcess", "AsyncRemoteWatch", "BlockingEngine", "BlockingFunction",
    "BlockingProcess", "BlockingSession", "BlockingWatch", "BusyError", "Cell", "CellError", "CellResult", "Change",
    "Client", "ClosedError", "configure", "ConnectError", "default_engine", "Ended", "Engine", "EngineError",
    "FileEntry", "Files", "Function", "HutchError", "Layer", "LibraryError", "Limit", "Limits", "NO_LIMIT",
    "NotFoundError", "Output", "PathEntry", "PathList", "Process", "ProcessEnd", "ProgramError", "RemoteFunction",
    "RemoteProcess", "RemoteSession", "RemoteWatch", "Reply", "Result", "Run", "run", "run_many", "RunError",
    "ServerBusyError", "ServerConflictError", "ServerError", "ServerNotFoundError", "Session", "session", "Stats",
    "Timings", "Usage", "Watch", "Zygote", "ZygoteStats",
]
