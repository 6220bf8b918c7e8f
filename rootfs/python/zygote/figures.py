# matplotlib's figures in cells: the inline backend, as if matplotlib had been imported under it. In the zygote it was
# imported for scripts, which draw into files.
import os
import sys

import drawing

INLINE = "module://matplotlib_inline.backend_inline"
held = []  # functions that are not called after the present cell


def forget_backend():
    """It looks for a shell when it is imported. What it imports itself stays."""
    sys.modules.pop("matplotlib_inline.backend_inline", None)
    vars(sys.modules.get("matplotlib_inline", os)).pop("backend_inline", None)


def install(shell):
    """Before it is used."""
    if os.environ.get("MPLBACKEND", "").lower() not in ("", "agg"):
        return  # the program wants another one
    os.environ["MPLBACKEND"] = INLINE
    matplotlib, pyplot = sys.modules.get("matplotlib"), sys.modules.get("matplotlib.pyplot")
    if matplotlib is None:
        return
    dict.__setitem__(matplotlib.rcParams, "backend", INLINE)
    forget_backend()
    if pyplot is None:
        return
    drawing.watch(pyplot, shell)
    if hasattr(pyplot, "_backend_mod"):
        pyplot._backend_mod = None  # it looks at "backend" when the first figure is made
    else:
        pyplot.switch_backend(INLINE)


def before(shell, are_shown):
    """@are_shown: whether the cell's figures are displayed at its end."""
    held.clear()
    inline = sys.modules.get("matplotlib_inline.backend_inline")
    if not are_shown and inline is not None and inline.flush_figures in shell.events.callbacks["post_execute"]:
        held.append(inline.flush_figures)
        shell.events.unregister("post_execute", inline.flush_figures)


def after(shell):
    for function in held:
        if function not in shell.events.callbacks["post_execute"]:
            shell.events.register("post_execute", function)
    held.clear()
    drawing.forget()


def count_open():
    helpers = sys.modules.get("matplotlib._pylab_helpers")
    return len(helpers.Gcf.figs) if helpers is not None else 0
