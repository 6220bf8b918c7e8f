# Cells that are executed for nothing, in the zygote and then in a worker that waits: what an interpreter does slower
# the first time is done, and the pages that it writes to are a worker's own already. The way is the one that real cells
# take, with nothing at the other end; and no trace remains.
import _signal
import contextlib
import os
import sys

import calls
import cells
import contexts
import figures
import shell

VALUE = "1 + 1"
PRINT = 'print("text", 1)\nNone'
ERROR = "def function(number):\n    return number / 0\nfunction(1)"
SYNTAX = "1 +"
AWAIT = "import asyncio\nawait asyncio.sleep(0)"
HTML = (
    'from IPython.display import display, HTML\ndisplay(HTML("<b>text</b>"), display_id=True)\n'
    '[{"key": 1}, (2.5, "text")]'
)
PANDAS = 'import pandas as pd\npd.DataFrame({"key": ["a", "b"], "value": [1, 2.5]})'
FIGURE = "import matplotlib.pyplot as plt\nplt.plot([1, 3, 2], label='line'); plt.title('title'); plt.legend()"
TWO_FIGURES = (
    "fig, axes = plt.subplots(1, 2)\naxes[0].bar(['a', 'b'], [1, 2]); axes[1].hist([1, 2, 2])\n"
    "plt.show()\nplt.figure()"
)
IN_ZYGOTE = [
    (None, (VALUE, PRINT, ERROR, SYNTAX, AWAIT, HTML, "x = 1;")),
    ("pandas", (PANDAS,)),
    ("matplotlib.pyplot", (FIGURE, TWO_FIGURES)),
]
AGAIN = [(None, (VALUE, PRINT)), ("matplotlib.pyplot", (FIGURE,))]
IN_WORKER = (VALUE, PRINT)
NAME = "rehearsal"


class NullHelper:
    """In the place of helper.so: what is sent goes nowhere."""

    def __getattr__(self, name):
        return lambda *_: 0


@contextlib.contextmanager
def restored(thing, *names):
    """These attributes are as they were, afterwards."""
    missing = object()
    saved = {name: getattr(thing, name, missing) for name in names}
    try:
        yield
    finally:
        for name, value in saved.items():
            if value is not missing:
                setattr(thing, name, value)
            elif hasattr(thing, name):
                delattr(thing, name)


@contextlib.contextmanager
def same_contents(*containers):
    """Likewise for what dictionaries, sets and lists hold. Not by their own methods: some of matplotlib's check
    values."""
    saved = [(thing, thing.copy() if not isinstance(thing, dict) else dict(dict.items(thing))) for thing in containers]
    try:
        yield
    finally:
        for thing, contents in saved:
            if isinstance(thing, list):
                thing[:] = contents
            elif isinstance(thing, dict):
                dict.clear(thing)
                dict.update(thing, contents)
            else:
                thing.clear()
                thing.update(contents)


@contextlib.contextmanager
def another_context(interactive):
    """The shell's own variables and counts stay as they are, and its database empty."""
    rooms = contexts.Contexts(interactive)
    rooms.has_database = False
    rooms.enter(NAME)
    try:
        yield
    finally:
        interactive.history_manager.db_input_cache.clear()
        interactive.history_manager.db_output_cache.clear()
        rooms.restore(rooms.others.pop(contexts.MAIN))


@contextlib.contextmanager
def matplotlib_as_it_was(interactive):
    matplotlib, pyplot = sys.modules.get("matplotlib"), sys.modules.get("matplotlib.pyplot")
    if pyplot is None:
        yield
        return
    from matplotlib_inline.config import InlineBackend

    names = ("new_figure_manager", "draw_if_interactive", "show")
    functions = [getattr(pyplot, name) for name in names if hasattr(pyplot, name)]
    with contextlib.ExitStack() as stack:
        enter = stack.enter_context
        enter(same_contents(matplotlib.rcParams, matplotlib.rcParamsDefault, matplotlib.rcParamsOrig))
        enter(same_contents(*[vars(function) for function in functions]))
        enter(restored(pyplot, "new_figure_manager", "draw_if_interactive", "show", "_backend_mod", "_REPL_DISPLAYHOOK",
                       "_draw_all_if_interactive"))
        enter(restored(matplotlib.backends, "backend"))
        enter(restored(interactive, "_saved_rcParams", "pylab_gui_select", "active_eventloop"))
        yield
    InlineBackend.clear_instance()
    figures.forget_backend()


@contextlib.contextmanager
def display_as_it_was(interactive):
    formatters = interactive.display_formatter.formatters.values()
    with contextlib.ExitStack() as stack:
        enter = stack.enter_context
        enter(same_contents(interactive.configurables, *interactive.events.callbacks.values()))
        enter(same_contents(*[one.type_printers for one in formatters], *[one.deferred_printers for one in formatters]))
        enter(matplotlib_as_it_was(interactive))
        yield


@contextlib.contextmanager
def nothing_left(parts, codes):
    """Copying much of what is there would cost a worker more pages than the cells do, so it is only done where it is
    needed."""
    import asyncio
    import linecache
    import tempfile

    interactive = parts.shell
    with contextlib.ExitStack() as stack:
        enter = stack.enter_context
        enter(shell.nothing_outside())
        enter(restored(sys, "stdout", "stderr", "last_type", "last_value", "last_traceback"))
        enter(restored(tempfile, "tempdir", "_name_sequence"))
        enter(restored(interactive, "_last_traceback", "exit_now"))
        enter(restored(parts.session, "pid", "message_count"))
        enter(same_contents(linecache.cache, interactive.compile._filename_map))
        if hasattr(linecache, "_ipython_cache"):  # IPython before 8.6
            enter(same_contents(linecache._ipython_cache))
        if codes is not IN_WORKER:
            enter(display_as_it_was(interactive))
        enter(another_context(interactive))
        yield
        interactive.set_parent({})
        parts.kernel._parents = {"shell": {}, "control": {}}
        interactive.last_execution_result, interactive.last_execution_succeeded = None, True
        asyncio.set_event_loop_policy(None)


def execute(parts, codes):
    import asyncio

    interpreter = cells.Interpreter(parts.link)
    interpreter.calls = calls.Calls(calls.Mail(parts.link), parts.shell)
    interpreter.parts, interpreter.contexts, interpreter.task_name = parts, contexts.Contexts(parts.shell), NAME

    async def all_of_them():
        for number, code in enumerate(codes):
            await interpreter.execute({"id": number, "code": code, "context": contexts.MAIN}, [])

    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    try:
        loop.run_until_complete(loop.create_task(all_of_them(), name=NAME))
    finally:
        loop.close()


def run(parts, codes):
    parts.link.helper = NullHelper()
    saved = _signal.getsignal(_signal.SIGINT)
    try:
        with nothing_left(parts, codes):
            shell.set_instance(parts.shell)
            shell.set_instance(parts.kernel)
            shell.set_back(parts.left)
            if codes is not IN_WORKER:
                figures.install(parts.shell)
            shell.set_places(parts.shell)
            shell.set_streams(parts)
            parts.session.pid = os.getpid()
            execute(parts, codes)
    finally:
        type(parts.shell).clear_instance()
        type(parts.kernel).clear_instance()
        _signal.signal(_signal.SIGINT, saved)
        del parts.link.helper


def in_zygote():
    """All of it once: Python 3.11 rewrites code that has been run eight times, and then tells less about where a line
    has failed."""
    if shell.made is None:
        return
    codes = AGAIN if shell.made.is_rehearsed else IN_ZYGOTE
    shell.made.is_rehearsed = True
    run(shell.made, [code for module, some in codes if module is None or module in sys.modules for code in some])


def in_worker():
    if shell.made is not None:
        run(shell.made, IN_WORKER)
