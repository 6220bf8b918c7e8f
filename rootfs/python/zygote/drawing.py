# The only figure of a cell, drawn as often as it needs. When a cell has ended, pyplot draws its figures into nothing;
# then the inline backend draws each again, as printing it begins with that, and a third time, for the image. For what
# most plots consist of, the third alone comes to the same bytes.
#
# That way is tried first, with its messages held back. If it comes to a warning, a message, or an exception, its result
# is dropped and the figure takes the long way, which tells the same in the usual order and from the usual places.
import sys

__name__ = "matplotlib"  # what its warnings look for is the first frame that is not its own

BACKEND = "matplotlib_inline.backend_inline"
PLAIN = {"AxesSubplot", "Axes", "FancyBboxPatch", "Legend", "Line2D", "LineCollection", "PathCollection",
         "PolyCollection", "Polygon", "Rectangle", "Spine", "Text", "XAxis", "YAxis"}  # fmt: skip
to_come = []


def is_to_come(shell, figure):
    """Whether it is certain to be printed at the end of this cell, as the inline backend prints, with no difference to
    be seen."""
    from matplotlib.figure import Figure
    from matplotlib_inline.config import InlineBackend

    inline, config = sys.modules.get(BACKEND), InlineBackend.instance()
    png = shell.display_formatter.formatters["image/png"]
    return (
        inline is not None
        and inline.show._draw_called
        and inline.flush_figures in shell.events.callbacks["post_execute"]
        and config.close_figures
        and config.figure_formats == {"png"}
        and config.print_figure_kwargs == {"bbox_inches": "tight"}
        and png.enabled
        and Figure in png.type_printers
        and type(figure) is Figure
        and figure.stale
        and figure.get_layout_engine() is None
        and not figure.canvas.callbacks.callbacks.get("draw_event")
        and len(figure.axes) > 0
        and is_deaf(figure)
    )


def is_of_matplotlib(thing):
    return type(thing).__module__.startswith("matplotlib.") and type(thing).__name__ != "FuncFormatter"


def artists_of(figure):
    return figure.get_children() + [artist for axes in figure.axes for artist in axes.get_children()]


def is_deaf(figure):
    """Whether no code but matplotlib's is called when it is drawn."""
    axes = [axis for each in figure.axes for axis in (each.xaxis, each.yaxis)]
    all_ticks = [ticks for axis in axes for ticks in (axis.major, axis.minor)]
    helpers = [helper for ticks in all_ticks for helper in (ticks.locator, ticks.formatter)]
    return all(map(is_of_matplotlib, helpers + artists_of(figure)))


def is_plain(figure):
    """Whether its extent can be told without drawing it."""
    for axes in figure.axes:
        if axes.name != "rectilinear" or axes.get_aspect() != "auto" or axes.get_axes_locator() is not None:
            return False
    return all(type(artist).__name__ in PLAIN for artist in artists_of(figure))


class Listener:
    """Takes what warnings and matplotlib's loggers have to say."""

    def __enter__(self):
        import logging
        import warnings

        self.warnings, self.logger = warnings, logging.getLogger("matplotlib")
        self.heard, self.messages = [], []  # warnings; records of loggers
        self.handler = logging.Handler(logging.WARNING)
        self.handler.emit = self.messages.append
        self.show, warnings._showwarnmsg = warnings._showwarnmsg, self.heard.append
        self.propagates, self.logger.propagate = self.logger.propagate, False
        self.logger.addHandler(self.handler)
        return self

    def __exit__(self, *_):
        self.logger.removeHandler(self.handler)
        self.logger.propagate = self.propagates
        self.warnings._showwarnmsg = self.show


class Printing:
    """In the place of one figure's canvas.print_figure()."""

    def __init__(self, shell, figure, draw_all):
        self.shell, self.figure, self.draw_all = shell, figure, draw_all

    def __call__(self, file, *rest, **named):
        del self.figure.canvas.print_figure
        start = file.tell()
        with Listener() as listener:
            is_done = self.print_shortly(file, rest, named)
        if is_done and not listener.heard and not listener.messages:
            return None
        file.seek(start)
        file.truncate()
        self.draw_as_ever()
        for message in listener.heard:  # a warning is given once for each place
            listener.show(message)
        return self.figure.canvas.print_figure(file, *rest, **named)

    def print_shortly(self, file, rest, named):
        if is_plain(self.figure):
            self.figure.draw = self.draw_if_seen
        try:
            self.figure.canvas.print_figure(file, *rest, **named)
            return True
        except Exception:
            return False
        finally:
            vars(self.figure).pop("draw", None)

    def draw_if_seen(self, renderer):
        if "draw_path" not in vars(renderer):  # RendererBase._draw_disabled() puts it there
            type(self.figure).draw(self.figure, renderer)

    def draw_as_ever(self):
        """What pyplot would have done before, in the way in which the shell would have had it done."""
        self.figure._stale = True  # not by its attribute, which has others look
        events = type(self.shell.events)(self.shell, ())
        events.callbacks = {"post_execute": [self.draw_all]}
        events.trigger("post_execute")


def watch(pyplot, shell):
    draw_all = getattr(pyplot, "_draw_all_if_interactive", None)
    if draw_all is None:
        return

    def draw_all_if_interactive():
        from matplotlib._pylab_helpers import Gcf

        try:
            figure = Gcf.get_active().canvas.figure if len(Gcf.figs) == 1 else None
            can_wait = figure is not None and is_to_come(shell, figure)
        except Exception:
            can_wait = False  # another version of matplotlib
        if can_wait:
            figure.canvas.print_figure = Printing(shell, figure, draw_all)
            to_come.append(figure.canvas)
        else:
            draw_all()

    pyplot._draw_all_if_interactive = draw_all_if_interactive


def forget():
    for canvas in to_come:
        vars(canvas).pop("print_figure", None)
    to_come.clear()
