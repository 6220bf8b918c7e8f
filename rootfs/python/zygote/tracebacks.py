# Tracebacks as they would be if nothing of ours were there: frames of hutch's own are left out, wherever they stand.
import os

import frames


def without_ours(value, traceback):
    """@traceback without such frames; so are then those of the exceptions that led to @value. A value that is no
    exception, which a program may hand to sys.excepthook, keeps what came with it."""
    if not isinstance(value, BaseException):
        return traceback
    seen = set()
    while value is not None and id(value) not in seen:
        seen.add(id(value))
        value.__traceback__ = cleaned(value.__traceback__)
        value = value.__cause__ or value.__context__
    return cleaned(traceback)


def cleaned(traceback):
    while traceback is not None and frames.is_ours(traceback.tb_frame):
        traceback = traceback.tb_next
    last = traceback
    while last is not None:
        following = last.tb_next
        while following is not None and frames.is_ours(following.tb_frame):
            following = following.tb_next
        if following is not last.tb_next:
            last.tb_next = following
        last = following
    return traceback


def line_of(value, filename):
    """The line in @filename, the cell's own file, that an exception came from; None when it is not known."""
    if isinstance(value, SyntaxError) and os.path.basename(value.filename or "") == os.path.basename(filename):
        return value.lineno
    line, traceback = None, value.__traceback__
    while traceback is not None:
        if traceback.tb_frame.f_code.co_filename == filename:
            line = traceback.tb_lineno
        traceback = traceback.tb_next
    return line


def cause_of(value):
    """One line: the exception, and the one at the bottom of its chain. None where that says nothing else."""
    origin, seen = value, set()
    while id(origin) not in seen:
        seen.add(id(origin))
        origin = origin.__cause__ or (None if origin.__suppress_context__ else origin.__context__) or origin
    result, reason = one_line(value), one_line(origin)
    return "%s, because of %s" % (result, reason) if reason != result else None


def one_line(value):
    try:
        text = str(value)
    except Exception:
        text = ""
    text = " ".join(text[:2000].split())[:500]
    return "%s: %s" % (type(value).__name__, text) if text else type(value).__name__
