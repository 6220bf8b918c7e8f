# Pools of threads and of processes in a copy of the interpreter. A copy has one thread and no children, and a pool that
# does not know it waits for ever. A ThreadPoolExecutor goes on with new threads; a pool of processes cannot, and raises
# when it is given work. What had been begun in either fails with the same sentence.
import gc
import os
import sys

import uncopied

GONE = (
    "what did this work is not in a copy of the interpreter, which a rollback, a fork or a switch goes on with: %s "
    "have ended. Make a new pool, and give it the work again"
)
LOKY = ("joblib.externals.loky", "loky")


def say_gone(what):
    return GONE % what


def loaded(name):
    return sys.modules.get(name)


def renew_lock(lock):
    """A thread that is not in the copy may have held it."""
    lock._at_fork_reinit()


def fail_future(future, error):
    """The one who waits for it is in this thread, or nowhere."""
    import threading

    future._condition = threading.Condition()
    if not future.done():
        future.set_exception(error)


# --- before the copy is made ---


def end_team_of_openmp():
    """libgomp waits in a copy for the threads of its team for ever. It makes a new one when it has none."""
    import ctypes

    for path in {path for _, path in uncopied.mapped_files() if "libgomp" in path.rpartition("/")[2]}:
        try:
            ctypes.CDLL(path, mode=os.RTLD_NOLOAD | os.RTLD_NOW).omp_pause_resource_all(2)  # hard
        except (AttributeError, OSError):
            pass


# --- concurrent.futures.ThreadPoolExecutor, and asyncio's default one among them ---


def find_thread_pools(module):
    """Those that have, or had, threads: a thread knows its executor. The module's own table of them is empty in a copy
    of Python 3.13."""
    import threading

    found = {}
    for thread in list(threading._dangling):
        arguments = getattr(thread, "_args", None) if getattr(thread, "_target", None) is module._worker else None
        executor = arguments[0]() if arguments else None
        if executor is not None:
            found[id(executor)] = executor
    module._threads_queues.clear()
    return list(found.values())


def find_begun(module):
    """What the lost threads were at: it is in no queue any more."""
    return [thing for thing in gc.get_objects() if type(thing) is module._WorkItem and thing.future.running()]


def renew_thread_pool(executor):
    """Its queue stays, in the order that it has."""
    import queue
    import threading

    waiting, executor._work_queue = executor._work_queue, queue.SimpleQueue()
    executor._shutdown_lock = threading.Lock()
    executor._idle_semaphore = threading.Semaphore(0)
    executor._threads = set()
    count = 0
    while True:
        try:
            executor._work_queue.put(waiting.get_nowait())
        except queue.Empty:
            break
        count += 1
    for _ in range(min(count, executor._max_workers)):
        executor._adjust_thread_count()


def renew_thread_pools():
    module = loaded("concurrent.futures.thread")
    executors = find_thread_pools(module) if module is not None else []
    if not executors:
        return
    if any(executor._idle_semaphore._value < len(executor._threads) for executor in executors):
        for item in find_begun(module):
            fail_future(item.future, module.BrokenThreadPool(say_gone("its threads")))
    for executor in executors:
        try:
            renew_thread_pool(executor)
        except Exception:
            executor._broken = say_gone("its threads")


# --- concurrent.futures.ProcessPoolExecutor, and joblib's, which is one of loky ---


def break_process_pools(module, flag):
    """All that have processes; @flag marks one. The next order to it raises."""
    count = 0
    error = module.BrokenProcessPool(say_gone("its processes"))
    for thread in list(module._threads_wakeups):
        renew_lock(thread.shutdown_lock)
        executor = thread.executor_reference()
        if executor is not None:
            flag(executor, error)
            executor._executor_manager_thread = executor._executor_manager_thread_wakeup = None
            count += 1
        for item in list(thread.pending_work_items.values()):
            fail_future(item.future, error)
        thread.pending_work_items.clear()
    module._threads_wakeups.clear()
    return count


def flag_executor(executor, error):
    executor._broken = str(error)


def flag_loky(executor, error):
    executor._flags.broken = error
    executor._flags.shutdown = True  # get_reusable_executor() and joblib make another one


def forget_reusable(package):
    module = loaded(package + ".reusable_executor")
    if module is None:
        return
    renew_lock(module._executor_lock)
    module._executor = module._executor_kwargs = None
    executor = loaded(package.partition(".")[0] + ".executor")  # joblib's own
    if hasattr(executor, "_executor_args"):
        executor._executor_args = None


def forget_tracker(name):
    """The process that removes what is shared, when its users have ended. Another one is started when it is needed."""
    tracker = getattr(loaded(name), "_resource_tracker", None)
    if tracker is None:
        return
    renew_lock(tracker._lock)
    if tracker._fd is not None:
        os.close(tracker._fd)
    tracker._fd = tracker._pid = None


def renew_process_pools():
    count = 0
    if loaded("concurrent.futures.process") is not None:
        count += break_process_pools(loaded("concurrent.futures.process"), flag_executor)
    for package in LOKY:
        if loaded(package + ".process_executor") is not None:
            break_process_pools(loaded(package + ".process_executor"), flag_loky)
            forget_reusable(package)
        forget_tracker(package + ".backend.resource_tracker")
    forget_tracker("multiprocessing.resource_tracker")
    return count


# --- multiprocessing ---


def fail_result(result, error):
    """Of apply_async(), map_async() or imap()."""
    import threading

    if hasattr(result, "_event"):
        if result._event.is_set():
            return
        result._event = threading.Event()
        result._success, result._value = False, error
        result._event.set()
    else:
        result._cond = threading.Condition(threading.Lock())
        result._items.append((False, error))
        result._length = result._index + 1


def break_pool(pool):
    import queue

    what = "its threads" if type(pool).__name__ == "ThreadPool" else "its processes"
    error = RuntimeError(say_gone(what))

    def refuse():
        raise error

    pool._check_running = refuse  # which all that gives it work asks
    for result in list(pool._cache.values()):
        fail_result(result, error)
    pool._cache.clear()
    pool._pool = []
    pool._change_notifier = queue.SimpleQueue()  # it was a pipe to the original's thread


def renew_multiprocessing():
    util = loaded("multiprocessing.util")
    if util is None:
        return 0
    module, pools = loaded("multiprocessing.pool"), []
    if module is not None:
        owners = [entry._weakref() for entry in list(util._finalizer_registry.values()) if entry._weakref is not None]
        pools = [owner for owner in owners if isinstance(owner, module.Pool)]
    for pool in pools:
        break_pool(pool)
    loaded("multiprocessing.process")._children.clear()
    util._run_after_forkers()  # queues, for instance, have a thread each
    return len(pools)


# --- all ---


def renew():
    """In the copy. Returns sentences on what could not be mended."""
    sentences, count = [], 0
    for act in (renew_thread_pools, renew_process_pools, renew_multiprocessing):
        try:
            count += act() or 0
        except Exception as problem:
            sentences.append("pools, which may wait for ever: %s" % problem)
    if count:
        sentences.append("%d %s of processes: make new ones" % (count, "pool" if count == 1 else "pools"))
    return sentences
