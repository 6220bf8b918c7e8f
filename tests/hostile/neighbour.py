"""An engine in which a session stands beside those that are attacked, and must not notice; and what is then asked of both."""
import contextlib
import time

import engine
import witness


@contextlib.contextmanager
def engine_with_session(prepared):
    """The engine, with so many sandboxes prepared; the session, in which `value` is "beside"; and the names of all processes then."""
    with engine.Engine(image="python", zygotes=(("shell", None, ("IPython", "ipykernel"), prepared, prepared),)) as warm:
        warm.settle()
        with engine.Session(warm) as beside:
            beside.printed("value = 'beside'")
            warm.settle()
            yield warm, beside, witness.names_of_processes()
            assert not beside.ends, beside.ends


def own_processes(warm):
    """Those that the engine starts once, and again only when one is lost."""
    stats = warm.stats()
    return [stats["launcher_pid"]] + [zygote["pid"] for zygote in stats["zygotes"]]


def check_outside(warm, own, processes):
    """@own: own_processes() before; @processes: names_of_processes() before. Sandboxes have a moment to be torn down."""
    assert own_processes(warm) == own, "a process of the engine was replaced"
    deadline, left = time.monotonic() + 20, [{}]

    def is_settled():  # for a moment: a pool that is filled again has processes on their way
        left[0] = witness.left_of(processes)
        return not left[0] or time.monotonic() > deadline

    warm.until(is_settled, what="the end of all processes")
    assert not left[0], "left processes: %s" % left[0]


def text_of(result):
    return "".join(output["text"] for output in result["outputs"] if output["output_type"] == "stream")
