# Copies of a running interpreter. A parked process is a copy that waits; on each order it makes another copy, which
# goes on where it was parked. All are children of process 1, so that a program which waits for its children finds only
# its own.
#
# A copy is the same state again, and no fork with a state of its own: random numbers, if any were drawn, come as they
# would have come. What belongs to the process and not to the state is renewed: who it is, and what its event loop waits
# with.
import _signal
import os
import sys

import channel
import files
import pools
import uncopied


class NotCopied(Exception):
    """One sentence."""


def fork_to_init():
    """True in the copy, False in the original. The copy has lost its threads and keeps all else."""
    random = sys.modules.get("random")
    state = random._inst.getstate() if random is not None else None
    channel.flush_streams()
    result = channel.Channel.helper.hutch_fork_to_init()
    if result < 0:
        raise NotCopied("the interpreter cannot be copied: %s" % os.strerror(-result))
    if result > 0 and random is not None:
        random._inst.setstate(state)
    return result > 0


def take_socket(fd):
    os.dup2(fd, channel.SOCKET, inheritable=False)
    os.close(fd)


# --- what a copy needs of its own ---


def renew_loop(loop):
    """The kernel's half of an event loop would be shared by two processes."""
    import asyncio

    old, own = loop._selector, (loop._ssock.fileno(), loop._csock.fileno())
    loop._selector = type(old)()
    for key in list(old.get_map().values()):
        if key.fd not in own:
            try:
                loop._selector.register(key.fileobj, key.events, key.data)
            except (OSError, ValueError):
                pass
    old.close()
    wakeup = _signal.set_wakeup_fd(-1)
    for sock in (loop._ssock, loop._csock):
        sock.close()
    loop._internal_fds -= 1
    loop._make_self_pipe()
    if wakeup == own[1]:
        wakeup = loop._csock.fileno()
    if wakeup >= 0:
        _signal.set_wakeup_fd(wakeup)
    asyncio._set_running_loop(loop)  # which remembers the process


def stop_script_loop(shell):
    """%%bash and its like keep a thread with a loop. If that has nothing to do, they can as well have another one
    later."""
    import asyncio
    import threading

    magics = shell.magics_manager.registry.get("ScriptMagics")
    loop = getattr(magics, "event_loop", None)
    if loop is None or loop.is_closed() or asyncio.all_tasks(loop):
        return
    for thread in threading.enumerate():
        if thread.name.startswith("waitpid-"):  # asyncio's, of a script that has ended
            thread.join(0.05)
        elif getattr(thread, "_target", None) == loop.run_forever:
            loop.call_soon_threadsafe(loop.stop)
            thread.join(1)
            wait_for_end(thread.native_id)
    if not loop.is_running():
        loop.close()
        magics.event_loop = None


def wait_for_end(thread_id):
    """Python's thread is over a little before the kernel's."""
    import time

    for _ in range(1000):
        if not os.path.exists("/proc/self/task/%s" % thread_id):
            return
        time.sleep(0.0005)


# --- the orders ---


def wait_parked(interpreter):
    """All that a parked process does. Returns in its copies."""
    link = interpreter.link
    while True:
        try:
            order, fds = link.receive()
        except (channel.Closed, OSError, ValueError):
            os._exit(0)
        if order.get("do") != "spawn" or len(fds) != 1:
            for fd in fds:
                os.close(fd)
            continue
        try:
            if fork_to_init():
                take_socket(fds[0])
                return
        except NotCopied as problem:
            link.send_unnumbered({"is": "failed", "why": str(problem)})
        os.close(fds[0])


def become_active(interpreter, loop, opened, missing):
    """Nothing of the program goes on before the engine says that the files are in place."""
    os.setpgid(0, 0)  # an interrupt for a copy is for no other
    interpreter.link.move()
    interpreter.renew()
    renew_loop(loop)
    send_here(interpreter)
    wait_for_files(interpreter.link)
    lost = missing + opened.renew()
    lost = uncopied.bounded(lost + pools.renew())  # threads may go on from here
    interpreter.link.send_unnumbered({"is": "renewed", "lost": lost})


def wait_for_files(link):
    while True:
        order, fds = link.receive()
        for fd in fds:
            os.close(fd)
        if order.get("do") == "renew":
            return


def send_here(interpreter):
    interpreter.link.send_unnumbered({"is": "here", "pid": os.getpid()})


def park(interpreter, loop, fds):
    """Makes a parked copy, with @fds[0] as its socket; tells the engine what it has not. Returns in each copy of that,
    too."""
    if len(fds) != 1:
        raise NotCopied("one socket is wanted, and %d came" % len(fds))
    if not os.path.isdir("/proc/self"):
        raise NotCopied("a copy takes a /proc that shows what is open and what runs, and this sandbox has none (its "
                        "level is no_proc: 'hutch doctor' says what the container around hutch has to allow)")
    stop_script_loop(interpreter.parts.shell)
    pools.end_team_of_openmp()
    own = {channel.SOCKET, loop._ssock.fileno(), loop._csock.fileno()} | set(fds)
    missing = uncopied.list_uncopied(own)
    opened = files.Files(own)
    missing += opened.list_uncopied()
    if not fork_to_init():
        interpreter.link.send({"is": "parked", "lost": uncopied.bounded(missing)})
        return
    try:
        _signal.signal(_signal.SIGINT, _signal.SIG_IGN)
        os.setpgid(0, 0)  # what kills the original's group is for no copy
        take_socket(fds.pop())
        send_here(interpreter)
        wait_parked(interpreter)
        become_active(interpreter, loop, opened, missing)
    except BaseException:
        os._exit(1)  # a partial copy could answer for the session
