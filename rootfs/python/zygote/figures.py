# matplotlib's figures in cells: the inline backend, as if matplotlib had been imported under it. In the zygote it was imported for
# scripts, which draw into files.
import os
import sys

INLINE = "module://matplotlib_inline.backend_inline"
held = []  # functions that are not called after the present cell
held_back = []  # figures that are drawn later than usual


def only_figure_to_come(shell):
    """The one figure that is open, if it is going to be drawn for certain when the cell has ended, and if drawing it once more before
    that would change nothing: all in it is matplotlib's own, and nobody listens."""
    from matplotlib._pylab_helpers import Gcf
    from matplotlib.figure import Figure
    from matplotlib_inline.config import InlineBackend

    inline, config = sys.modules.get("matplotlib_inline.backend_inline"), InlineBackend.instance()
    if inline is None or len(Gcf.figs) != 1 or not inline.show._draw_called or not config.close_figures:
        return None
    if inline.flush_figures not in shell.events.callbacks["post_execute"] or config.figure_formats != {"png"}:
        return None
    figure = Gcf.get_active().canvas.figure
    if type(figure) is not Figure or figure.get_layout_engine() is not None or figure.canvas.callbacks.callbacks.get("draw_event"):
        return None
    if any(axes.get_aspect() != "auto" for axes in figure.axes):
        return None
    if not all(type(artist).__module__.startswith(("matplotlib.", "mpl_toolkits.")) for artist in figure.findobj()):
        return None
    return figure


def spare_a_drawing(pyplot, shell):
    """At the end of a cell pyplot draws the figures, into nothing, and then the inline backend draws them again to show them."""
    draw_all = getattr(pyplot, "_draw_all_if_interactive", None)
    if draw_all is None:
        return

    def draw_all_if_interactive():
        try:
            figure = only_figure_to_come(shell)
        except Exception:
            figure = None  # another version of matplotlib
        if figure is None:
            draw_all()
            return
        draw = figure.draw

        def draw_at_last(renderer):
            del figure.draw
            try:
                return draw(renderer)
            except Exception as error:
                problem = error
            figure._stale = True  # not by its attribute, which has others look
            fail_first()  # while no exception is being handled, or it would be told as its context
            raise problem

        def fail_first():
            """As it would have failed, and been told, before."""
            events = type(shell.events)(shell, ())
            events.callbacks = {"post_execute": [draw_all]}
            events.trigger("post_execute")

        figure.draw = draw_at_last
        held_back.append(figure)

    pyplot._draw_all_if_interactive = draw_all_if_interactive


def forget_backend():
    """It looks for a shell when it is imported. What it imports itself stays."""
    sys.modules.pop("matplotlib_inline.backend_inline", None)
    vars(sys.modules.get("matplotlib_inline", os)).pop("backend_inline", None)


def install(shell):
    """Before it is used."""
    if os.environ.get("MPLBACKEND", "").lower() not in ("", "agg"):
        return  # somebody wants another one
    os.environ["MPLBACKEND"] = INLINE
    matplotlib, pyplot = sys.modules.get("matplotlib"), sys.modules.get("matplotlib.pyplot")
    if matplotlib is None:
        return
    dict.__setitem__(matplotlib.rcParams, "backend", INLINE)
    forget_backend()
    if pyplot is None:
        return
    spare_a_drawing(pyplot, shell)
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
    for figure in held_back:
        vars(figure).pop("draw", None)
    held_back.clear()


def count_open():
    helpers = sys.modules.get("matplotlib._pylab_helpers")
    return len(helpers.Gcf.figs) if helpers is not None else 0
