# Makes a fork of an interpreter a fresh one. A fork has everything that its parent had: the state of random number
# generators, counters that names are made from, what was remembered about the process. Two forks must not repeat each
# other, and none may differ from an interpreter that has just started and imported the same.
#
# What all forks of a zygote do share: the seed of str hashes and the layout of the address space. Both are chosen when
# the zygote starts.
import _signal
import _weakref
import contextlib
import ctypes
import gc
import itertools
import os
import sys
import time

# --- in the zygote ---

MT19937_WORDS = 624
OS_ENTROPY = 1 << 64  # numpy's seed sequences hold 128 random bits where no seed was given

python_generators = []  # weak references to random.Random objects that were seeded by the system
numpy_generators = []  # numpy's bit generators that were seeded by the system
recursion_limit = sys.getrecursionlimit()
mt19937_states = []  # addresses of the states of Mersenne Twisters among those; rootfs/helper/pymain.c fills them
mt19937_generators = []  # the generators that have these states, kept alive
logging_shutdown = []
held_back = []  # keyword arguments of os.register_at_fork()


@contextlib.contextmanager
def watch_seeds():
    """Random number generators that some module makes meanwhile are remembered, unless they were given a seed: those
    have to yield the same in every process."""
    import random

    seed = random.Random.seed
    seen = {}

    def watched(self, a=None, version=2):
        seen[id(self)] = (_weakref.ref(self), a is None)
        return seed(self, a, version)

    random.Random.seed = watched
    try:
        yield
    finally:
        random.Random.seed = seed
        python_generators.extend(reference for reference, is_random in seen.values() if is_random)


def address_of_state(bits):
    """Of a Mersenne Twister's 624 words, or None where they are not what they are known to be."""
    if type(bits).__name__ != "MT19937":
        return None
    address = bits.ctypes.state_address
    state = bits.state["state"]
    words = (ctypes.c_uint32 * (MT19937_WORDS + 1)).from_address(address)
    if [*words] != [*state["key"], state["pos"]] or state["pos"] < MT19937_WORDS - 1:
        return None
    return address


def find_generators():
    """numpy tells how a generator was seeded, so looking at all that there are is enough."""
    numpy_random = sys.modules.get("numpy.random")
    if numpy_random is None:
        return
    for thing in gc.get_objects():
        if isinstance(thing, numpy_random.RandomState):
            bits = thing._bit_generator
        elif isinstance(thing, numpy_random.Generator):
            bits = thing.bit_generator
        else:
            continue
        entropy = getattr(getattr(bits, "_seed_seq", None), "entropy", None)
        if not isinstance(entropy, int) or entropy < OS_ENTROPY:
            continue
        if type(bits).__name__ == "MT19937" and isinstance(thing, numpy_random.RandomState):
            thing.seed()  # nothing is left of what was drawn
        address = address_of_state(bits)
        if address is None:
            numpy_generators.append(bits)
        else:
            mt19937_states.append(address)
            mt19937_generators.append(bits)


# What these modules do in a forked child is done below for less, or is not needed as their locks were free: every
# function that a worker calls costs it some ten pages of memory. In a worker the hooks are for its own children.
# matplotlib's drops the fonts that were loaded, as their files would share one position with the parent's; the zygote's
# are in memory (first_use.py).
KNOWN_HOOKS = {"random", "threading", "logging", "concurrent.futures.thread", "matplotlib.font_manager"}


@contextlib.contextmanager
def hold_back_hooks():
    register = os.register_at_fork

    def register_unknown(**hooks):
        if sys._getframe(1).f_globals.get("__name__") in KNOWN_HOOKS:
            held_back.append(hooks)
        else:
            register(**hooks)

    os.register_at_fork = register_unknown
    try:
        yield
    finally:
        os.register_at_fork = register


class LoggingShutdown:
    """In the place of logging.shutdown() among the functions that run at the end: that flushes every handler, which is
    nothing to do, and forty pages of memory, where a program has added none."""

    def __init__(self, module):
        self.function, self.handlers = module.shutdown, module._handlerList
        self.note_handlers()

    def note_handlers(self):
        self.count, self.last = len(self.handlers), self.handlers[-1:]

    def __call__(self):
        if len(self.handlers) != self.count or self.handlers[-1:] != self.last:
            self.function()

    def __eq__(self, other):  # atexit.unregister() asks
        return other == self.function


@contextlib.contextmanager
def replace_shutdown():
    import atexit

    register = atexit.register

    def register_other(function, *arguments, **named):
        if function is getattr(sys.modules.get("logging"), "shutdown", None):
            logging_shutdown.append(LoggingShutdown(sys.modules["logging"]))
            register(logging_shutdown[0])
            return function
        return register(function, *arguments, **named)

    atexit.register = register_other
    try:
        yield
    finally:
        atexit.register = register


def start_again(module_name, **values):
    """Gives attributes of a module the value that they have right after its import, if it was imported."""
    module = sys.modules.get(module_name)
    for name, value in values.items():
        if hasattr(module, name):
            setattr(module, name, value)


def clean_up():
    """What imports and first use have left that no fresh interpreter has, as far as it can be undone before the
    fork."""
    for number in range(1, _signal.NSIG):
        try:  # Python knows nothing of a library's own, such as that of readline
            _signal.signal(number, _signal.SIG_DFL)
        except (OSError, ValueError):
            pass  # SIGKILL, and those that libc has taken
    for name in (b"LINES", b"COLUMNS"):  # readline's, for children
        if name not in os.environ._data:
            os.unsetenv(name)
    for name in ("SIGPIPE", "SIGXFSZ", "SIGXFZ"):  # as python3 does when it starts
        if hasattr(_signal, name):
            _signal.signal(getattr(_signal, name), _signal.SIG_IGN)
    _signal.signal(_signal.SIGINT, _signal.default_int_handler)
    _signal.set_wakeup_fd(-1)
    if "faulthandler" in sys.modules and sys.modules["faulthandler"].is_enabled():
        sys.modules["faulthandler"].disable()
        sys.modules["faulthandler"].enable()
    if "linecache" in sys.modules:
        sys.modules["linecache"].clearcache()

    start_again("tempfile", _name_sequence=None, tempdir=None)
    start_again("uuid", _node=None, _last_timestamp=None)
    start_again("threading", _counter=itertools.count(1).__next__)
    start_again("asyncio.tasks", _task_name_counter=itertools.count(1).__next__)
    start_again("multiprocessing.process", _process_counter=itertools.count(1), _children=set())
    if "concurrent.futures.thread" in sys.modules:
        sys.modules["concurrent.futures.thread"].ThreadPoolExecutor._counter = itertools.count().__next__
    if "multiprocessing.process" in sys.modules:
        sys.modules["multiprocessing.process"]._current_process._config.pop("tempdir", None)
    if "multiprocessing.synchronize" in sys.modules:
        semaphore = sys.modules["multiprocessing.synchronize"].SemLock
        semaphore._rand = type(semaphore._rand)()
    if "_sqlite3" in sys.modules:
        try:  # its generator takes a new seed from the system when it is used again
            ctypes.PyDLL(sys.modules["_sqlite3"].__file__).sqlite3_randomness(0, None)
        except (AttributeError, OSError):
            pass

    sys.setrecursionlimit(recursion_limit)  # jedi, which IPython imports, sets another one
    for function in logging_shutdown:
        function.note_handlers()

    # Directories that are not the image's hold something else in a sandbox.
    prefixes = (sys.prefix + "/", sys.base_prefix + "/")
    for path in [path for path in sys.path_importer_cache if not path.startswith(prefixes)]:
        del sys.path_importer_cache[path]
    for name in ("last_type", "last_value", "last_traceback", "last_exc"):
        if hasattr(sys, name):
            delattr(sys, name)


# --- in the worker ---


def renew_random(module):
    module.seed()
    for reference in python_generators:
        generator = reference()
        if generator is not None:
            generator.seed()


def renew_numpy_random(_module):
    for bits in numpy_generators:
        bits.state = type(bits)().state


def renew_ssl(module):
    # OpenSSL knows a fork by its process id, and that of every worker is the same.
    module.RAND_add(os.urandom(32), 32.0)


def renew_threading(module):
    module._main_thread._native_id = module.get_native_id()


def renew_multiprocessing(module):
    module._current_process._config["authkey"] = module.AuthenticationString(os.urandom(32))


def renew_logging(module):
    # What relativeCreated counts from: nanoseconds, and seconds before Python 3.13.
    module._startTime = time.time_ns() if isinstance(module._startTime, int) else time.time()


BY_MODULE = [
    ("random", renew_random),
    ("numpy.random", renew_numpy_random),
    ("ssl", renew_ssl),
    ("threading", renew_threading),
    ("multiprocessing.process", renew_multiprocessing),
    ("logging", renew_logging),
]


def everything():
    modules = sys.modules
    for name, renew in BY_MODULE:
        module = modules.get(name)
        if module is not None:
            renew(module)
    for hooks in held_back:
        os.register_at_fork(**hooks)
