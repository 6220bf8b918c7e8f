# The shell that executes cells: IPython's for notebooks, ipykernel.zmqshell.ZMQInteractiveShell, made in the zygote
# once and used by workers. No process but one that executes cells may find a trace of it: what IPython puts into
# builtins, sys and atexit when a shell is made is taken out again here, and put back by install().
import _signal
import builtins
import contextlib
import os
import sys
import types

import channel
import frames
import kernel
import tracebacks

BUILTINS = ("__IPYTHON__", "display", "get_ipython")
SYS = ("ps1", "ps2", "ps3", "displayhook", "excepthook")
LINECACHE = ("checkcache",)
HOME = "/tmp"
KERNEL_THREADS = 4
CONNECTION_FILE = "/tmp/kernel.json"
made = None  # what make() returns, once it was called


class LazyShelf:
    """IPython's own little database, which makes its directory when it is created; this one when it is first used, by
    %store for example."""

    original = None

    def __init__(self, root):
        self._root = root
        self._shelf = None

    def _open(self):
        if self._shelf is None:
            self._shelf = LazyShelf.original(self._root)
        return self._shelf

    def __getattr__(self, name):
        return getattr(self._open(), name)

    def __getitem__(self, key):
        return self._open()[key]

    def __setitem__(self, key, value):
        self._open()[key] = value

    def __delitem__(self, key):
        del self._open()[key]

    def __contains__(self, key):
        return key in self._open()

    def __iter__(self):
        return iter(self._open())

    def __len__(self):
        return len(self._open())


@contextlib.contextmanager
def nothing_outside():
    """Whatever is done meanwhile leaves the interpreter as it was. Yields what was to be there, for set_back()."""
    import atexit  # the one that others import by now, not that of before main.hide()
    import linecache

    missing, main, environ = object(), sys.modules.get("__main__"), dict(os.environ)
    named = ((builtins, BUILTINS), (sys, SYS), (linecache, LINECACHE))
    places = [(thing, name) for thing, names in named for name in names]
    before = [getattr(thing, name, missing) for thing, name in places]
    register = atexit.register
    left = types.SimpleNamespace(values=[], at_exit=[])
    atexit.register = lambda function, *rest, **named: left.at_exit.append((function, rest, named)) or function
    try:
        yield left
    finally:
        atexit.register = register
        for (thing, name), value in zip(places, before):
            now = getattr(thing, name, missing)
            if now is not value:
                left.values.append((thing, name, now))
                if value is missing:
                    delattr(thing, name)
                else:
                    setattr(thing, name, value)
        sys.modules["__main__"] = main
        for name in set(os.environ) - set(environ):
            del os.environ[name]
        for name, value in environ.items():
            if os.environ.get(name) != value:
                os.environ[name] = value


def set_back(left):
    for thing, name, value in left.values:
        setattr(thing, name, value)


def place_profile(profile_dir, ipython_dir):
    """Not by its attributes: setting those makes directories."""
    place = ipython_dir + "/profile_default"
    values = {name + "_dir": place + "/" + name for name in ("security", "log", "startup", "pid", "static")}
    profile_dir._trait_values.update(values, location=place, _location_isset=True)


@contextlib.contextmanager
def nothing_on_disk(cls):
    """A shell that is made meanwhile makes no directories, and leaves the environment alone: install() does that."""
    from IPython.core import interactiveshell

    shelf = LazyShelf.original = interactiveshell.PickleShareDB
    if not hasattr(shelf, "_mock"):  # what IPython has instead, where the module pickleshare is missing, writes nothing
        interactiveshell.PickleShareDB = LazyShelf
    saved = {name: vars(cls)[name] for name in ("init_environment",)}
    cls.init_ipython_dir = lambda self, ipython_dir: self._trait_values.update(ipython_dir=ipython_dir)
    cls.init_environment = lambda self: None
    try:
        yield
    finally:
        interactiveshell.PickleShareDB = shelf
        del cls.init_ipython_dir
        for name, value in saved.items():
            setattr(cls, name, value)


def adapt(shell):
    """What is different for want of an application around the kernel. On the object: programs look at its class."""
    from ipykernel import eventloops
    from IPython.core.error import UsageError

    get_exc_info = shell._get_exc_info

    def enable_gui(gui):
        try:
            eventloops.enable_gui(gui, kernel=shell.kernel)
            shell.active_eventloop = gui
        except ValueError as e:
            raise UsageError("%s" % e) from e

    def get_exc_info_of_program(exc_tuple=None):
        kind, value, traceback = get_exc_info(exc_tuple)
        return kind, value, tracebacks.without_ours(value, traceback)

    shell.enable_gui, shell._get_exc_info = enable_gui, get_exc_info_of_program
    shell.extension_manager.load_extension("storemagic")  # the one that ipykernel's application loads


def uses(module, function, name):
    """Whether a function of the image's ipykernel, which need not be imported, has a name in it."""
    try:
        return name in frames.find_code(module, function).co_names
    except (ImportError, StopIteration, OSError):
        return False


def make(link):
    """Makes the shell, with all that belongs to it; or returns the one there is."""
    global made
    if made is not None:
        return made
    from IPython.core import debugger, interactiveshell
    from IPython.core.profiledir import ProfileDir
    from ipykernel.compiler import XCachingCompiler
    from ipykernel.zmqshell import ZMQInteractiveShell
    from traitlets.config import Config

    ipython_dir = os.path.join(HOME, ".ipython")
    config = Config({"IPKernelApp": {"connection_file": CONNECTION_FILE}, "HistoryManager": {"hist_file": ":memory:"}})
    with nothing_outside() as left, nothing_on_disk(ZMQInteractiveShell):
        profile_dir = ProfileDir()
        place_profile(profile_dir, ipython_dir)
        parts = kernel.make(link, profile_dir, config)
        shell = ZMQInteractiveShell(
            parent=parts.kernel,
            ipython_dir=ipython_dir,
            profile_dir=profile_dir,
            kernel=parts.kernel,
            compiler_class=XCachingCompiler,
        )
        adapt(shell)
    ZMQInteractiveShell.clear_instance()
    parts.kernel.shell = parts.app.shell = shell
    shell.configurables += [parts.kernel.comm_manager, parts.app]
    for part in (shell.displayhook, shell.display_pub):
        part.session, part.pub_socket = parts.session, parts.null_socket
    shell.displayhook.topic = b"kernel.none.execute_result"
    made = types.SimpleNamespace(
        link=link,
        shell=shell,
        left=left,
        debugger=debugger,
        asyncio_runner=interactiveshell._asyncio_runner,
        **vars(parts),
    )
    made.is_rehearsed = False
    # Of ipykernel 6.29: what starts it takes off the search path what Python's option -m has put there, and it leaves
    # the name of the kernel in the file that nbclient wrote.
    made.takes_directory_off = uses("ipykernel_launcher", "", "cwd")
    if uses("ipykernel.kernelapp", "IPKernelApp.write_connection_file", "exists"):
        made.app.kernel_name = "python3"
    made.recursion_limit = sys.getrecursionlimit()  # which renew.py undoes
    return made


def set_instance(instance):
    """What instance() of its class and those above returns."""
    for cls in type(instance)._walk_mro():
        cls._instance = instance


def set_streams(parts):
    sys.stdout = parts.stream_class(parts.session, "stdout", 1)
    sys.stderr = parts.stream_class(parts.session, "stderr", 2)


def set_places(shell):
    """What a shell remembers of where and when it was made."""
    from pathlib import Path

    shell.starting_dir = os.getcwd()
    shell.home_dir = shell.logger.home_dir = os.path.expanduser("~")
    ipython_dir = os.environ.get("IPYTHONDIR") or os.path.join(shell.home_dir, ".ipython")
    shell._trait_values["ipython_dir"] = ipython_dir
    place_profile(shell.profile_dir, ipython_dir)
    if isinstance(shell.db, LazyShelf):
        shell.db._root = shell.profile_dir.location + "/db"
    shell.history_manager.dir_hist[:] = [Path.cwd()]


def make_files(parts):
    """What a kernel finds or makes when it starts: the directories of its profile, and the file that says where it
    listens. This one listens nowhere, so its ports are 0."""
    try:
        shelf = "/db" if isinstance(parts.shell.db, LazyShelf) else ""
        os.makedirs(parts.shell.profile_dir.location + shelf, exist_ok=True)
        parts.shell.profile_dir.check_dirs()
    except OSError:
        pass  # a home that cannot be written to: whoever uses the profile is told
    try:
        fd = os.open(CONNECTION_FILE, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except OSError:
        return
    parts.session.key = channel.new_id().encode("ascii")
    with open(fd, "w") as file:
        file.write(kernel.connection_text(parts.app))


def set_arguments():
    """As of python3 -m ipykernel_launcher, started by nbclient."""
    import ipykernel

    package = os.path.dirname(ipykernel.__file__)
    launcher = os.path.join(os.path.dirname(package), "ipykernel_launcher.py")
    sys.argv[:] = [launcher, "-f", CONNECTION_FILE, "--HistoryManager.hist_file=:memory:"]
    for at, path in enumerate(sys.path):  # IPython.core.shellapp: InteractiveShellApp.init_path()
        if os.path.basename(path) in ("site-packages", "dist-packages"):
            break
    else:
        at = 0
    sys.path.insert(at, "")
    if not made.takes_directory_off:
        sys.path.insert(0, os.getcwd())  # -m


def set_pandas_width():
    """pandas, when it is imported, looks whether it is in a notebook: pandas.core.config_init."""
    config = getattr(sys.modules.get("pandas"), "_config", None)
    options = getattr(getattr(config, "config", None), "_registered_options", {})
    name = "display.max_columns"
    if name in options and options[name].defval == 0:
        options[name] = options[name]._replace(defval=20)
        config.config.set_option(name, 20)


def count_threads():
    """As if those of a kernel had been started, which has four that take their names from this count."""
    import itertools
    import threading

    if hasattr(threading, "_counter"):
        threading._counter = itertools.count(1 + KERNEL_THREADS).__next__


def install():
    """In the worker that is to execute cells."""
    import atexit

    parts = made
    shell = parts.shell
    _signal.signal(_signal.SIGINT, _signal.SIG_IGN)
    shell.init_environment()
    os.environ["JPY_PARENT_PID"] = str(os.getppid())
    set_instance(shell)
    set_instance(parts.kernel)
    set_instance(parts.app)
    sys.modules[parts.app_module.__name__] = sys.modules["ipykernel"].kernelapp = parts.app_module
    set_back(parts.left)
    sys.excepthook = sys.__excepthook__
    for function, rest, named in parts.left.at_exit:
        atexit.register(function, *rest, **named)
    sys.modules[shell.user_module.__name__] = shell.user_module
    set_places(shell)
    make_files(parts)
    set_arguments()
    sys.setrecursionlimit(parts.recursion_limit)
    set_streams(parts)
    renew()
    count_threads()
    set_pandas_width()

    import pdb

    if hasattr(parts.debugger, "InterruptiblePdb"):  # ipykernel.kernelapp: IPKernelApp.init_pdb()
        parts.debugger.Pdb = parts.debugger.InterruptiblePdb
        pdb.Pdb = parts.debugger.Pdb
        pdb.set_trace = parts.debugger.set_trace
    return parts


def renew():
    """What is of this process and no other."""
    made.session.pid = os.getpid()
    made.session.session = channel.new_id()
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "_master_pid"):
            stream._master_pid = os.getpid()
