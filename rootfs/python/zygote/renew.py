# Makes a fork of an interpreter a fresh one. A fork has everything that its parent had: the state of random number generators,
# counters that names are made from, what was remembered about the process. Two forks must not repeat each other, and none
# may differ from an interpreter that has just started and imported the same.
#
# What all forks of a zygote do share: the seed of str hashes and the layout of the address space. Both are chosen when the zygote
# starts.
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

TWISTER_WORDS = 624
FIRST_WORD = (1 << 31).to_bytes(4, sys.byteorder)  # as numpy has it; never are all words zero
OS_ENTROPY = 1 << 64  # numpy's seed sequences hold 128 random bits where nobody gave a seed

python_generators = []  # weak references to random.Random objects that were seeded by the system
numpy_generators = []  # numpy's, likewise: (RandomState or Generator, bit generator)
twisters = []  # addresses of the states of numpy's Mersenne Twisters, likewise
sqlite_reset = []
held_back = []  # keyword arguments of os.register_at_fork()
start_signals = [getattr(_signal, name) for name in ("SIGPIPE", "SIGXFSZ", "SIGXFZ") if hasattr(_signal, name)]  # ignored


@contextlib.contextmanager
def watch_seeds():
    """Random number generators that some module makes meanwhile are remembered, unless they were given a seed: those have to
    yield the same in every process."""
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
    words = (ctypes.c_uint32 * (TWISTER_WORDS + 1)).from_address(address)
    if [*words] != [*state["key"], state["pos"]] or state["pos"] < TWISTER_WORDS - 1:
        return None
    return address


def find_generators():
    """numpy tells how a generator was seeded, so looking at all that there are is enough."""
    numpy_random = sys.modules.get("numpy.random")
    if numpy_random is not None:
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
            address = None
            if isinstance(thing, numpy_random.RandomState):
                thing.seed()  # no half of a pair of normal deviates is left from here on
                address = address_of_state(bits)
            if address is None:
                numpy_generators.append((thing, bits))
            else:
                twisters.append((bits, address))
    if "_sqlite3" in sys.modules and not sqlite_reset:
        try:
            sqlite_reset.append(ctypes.PyDLL(sys.modules["_sqlite3"].__file__).sqlite3_randomness)
        except (AttributeError, OSError):
            pass


# What these modules do in a forked child is done below for less, or is not needed as nobody held their locks: every function
# that a worker calls costs it some ten pages of memory. In a worker the hooks are for its own children. matplotlib's drops
# the fonts that were loaded, as their files would share one position with the parent's; the zygote's are in
# memory (first_use.py).
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


def clean_up():
    """What imports may have left that no fresh interpreter has, as far as it can be undone once for all."""
    for number in range(1, _signal.NSIG):
        handler = _signal.getsignal(number)
        if callable(handler):
            _signal.signal(number, _signal.SIG_DFL)
    renew_signals()
    _signal.set_wakeup_fd(-1)
    if "linecache" in sys.modules:
        sys.modules["linecache"].clearcache()
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


def renew_numpy_random(module):
    for _bits, address in twisters:
        # What numpy itself does is to derive these words from 16 bytes of the system's, which costs the worker half a megabyte.
        ctypes.memmove(address, FIRST_WORD + os.urandom(4 * TWISTER_WORDS - 4), 4 * TWISTER_WORDS)
    for generator, bits in numpy_generators:
        if isinstance(generator, module.RandomState):
            generator.seed()
        else:
            bits.state = type(bits)().state


def renew_tempfile(module):
    module._name_sequence = None
    module.tempdir = None


def renew_uuid(module):
    module._node = None
    module._last_timestamp = None


def renew_ssl(module):
    # OpenSSL knows a fork by its process id, and that of every worker is the same.
    module.RAND_add(os.urandom(32), 32.0)


def renew_sqlite(_module):
    for reset in sqlite_reset:
        reset(0, None)


def renew_threading(module):
    """The main thread has a new state (see pymain.c), which tells of its end by another lock, and a new number. Before 3.13
    the lock is Python's business."""
    main = module._main_thread
    if hasattr(main, "_tstate_lock"):
        lock = module._set_sentinel()
        lock.acquire()
        main._tstate_lock = lock
        module._shutdown_locks = {lock}
    main._native_id = module.get_native_id()
    module._counter = itertools.count(1).__next__


def renew_thread_pools(module):
    module.ThreadPoolExecutor._counter = itertools.count().__next__


def renew_asyncio_tasks(module):
    if hasattr(module, "_task_name_counter"):
        module._task_name_counter = itertools.count(1).__next__


def renew_multiprocessing(module):
    module._process_counter = itertools.count(1)
    module._children = set()
    main = module._current_process
    main._config["authkey"] = module.AuthenticationString(os.urandom(32))
    main._config.pop("tempdir", None)


def renew_semaphores(module):
    module.SemLock._rand = type(module.SemLock._rand)()


def renew_logging(module):
    module._startTime = time.time()  # what relativeCreated counts from


def renew_faulthandler(module):
    if module.is_enabled():
        module.disable()
        module.enable()


BY_MODULE = [
    ("random", renew_random),
    ("numpy.random", renew_numpy_random),
    ("tempfile", renew_tempfile),
    ("uuid", renew_uuid),
    ("ssl", renew_ssl),
    ("_sqlite3", renew_sqlite),
    ("threading", renew_threading),
    ("concurrent.futures.thread", renew_thread_pools),
    ("asyncio.tasks", renew_asyncio_tasks),
    ("multiprocessing.process", renew_multiprocessing),
    ("multiprocessing.synchronize", renew_semaphores),
    ("logging", renew_logging),
    ("faulthandler", renew_faulthandler),
]


def renew_modules():
    modules = sys.modules
    for name, renew in BY_MODULE:
        module = modules.get(name)
        if module is not None:
            renew(module)


def renew_signals():
    """Those that python3 sets when it starts. The kernel's side of all of them was reset by whoever forked."""
    for number in start_signals:
        _signal.signal(number, _signal.SIG_IGN)
    _signal.signal(_signal.SIGINT, _signal.default_int_handler)


def everything():
    renew_signals()
    modules = sys.modules
    for name, renew in BY_MODULE:
        module = modules.get(name)
        if module is not None:
            renew(module)
    for hooks in held_back:
        os.register_at_fork(**hooks)
