# Compiled by sitecustomize.py when a program ends with an uncaught exception; see runtime/lang/python_error.h for the
# record that it writes. Prints exactly what Python prints: the interpreter's own code does it, and Tee listens.

MAX_NAME, MAX_VALUE, MAX_TRACEBACK = 4 << 10, 64 << 10, 256 << 10
CUT = "\n[... left out ...]\n"


class Tee:
    """Stands in for sys.stderr while the exception is printed. Keeps the beginning and the end of what is written."""

    def __init__(self, stream):
        self._stream = stream
        self._head, self._head_len = [], 0
        self._tail, self._is_cut = "", False
        self._is_broken = False

    def write(self, text):
        try:
            self._keep(text)
        except MemoryError:
            pass
        try:
            return self._stream.write(text)
        except BaseException:
            self._is_broken = True  # the interpreter gives up here, or leaves pieces out
            raise

    def _keep(self, text):
        half = MAX_TRACEBACK // 2
        text = str(text)
        room = half - self._head_len
        if room > 0:
            self._head.append(text[:room])
            self._head_len += len(self._head[-1])
            text = text[room:]
        if text:
            self._tail += text
            if len(self._tail) > half:
                self._tail = self._tail[-half:]
                self._is_cut = True

    def text(self):
        """What was printed; nothing when it was not printed whole."""
        if self._is_broken:
            return ""
        return "".join(self._head) + (CUT if self._is_cut else "") + self._tail

    def __getattr__(self, name):
        return getattr(self._stream, name)


def encode(text, limit):
    data = text[: limit + 1].encode("utf-8", "backslashreplace")
    if len(data) <= limit and len(text) <= limit:
        return data
    return data[: limit - 3].decode("utf-8", "ignore").encode("utf-8") + b"..."


def encode_ends(text, limit):
    """Like encode(), but what is too long loses its middle: the end of a traceback says what went wrong."""
    data = text.encode("utf-8", "backslashreplace")
    if len(data) <= limit:
        return data
    half = (limit - len(CUT)) // 2
    head, tail = data[:half].decode("utf-8", "ignore"), data[-half:].decode("utf-8", "ignore")
    return (head + CUT + tail).encode("utf-8")


def formatted(kind, value, traceback):
    try:
        from traceback import format_exception

        return "".join(format_exception(kind, value, traceback))
    except BaseException:
        return ""


def printed_value(name, printed):
    """The text after "name: " in the last part of a traceback, or None."""
    at = printed.rfind("Traceback (most recent call last):\n")
    if at < 0:
        return None
    lines = printed[at:].splitlines(True)[1:]
    while lines and lines[0].startswith(" "):
        lines.pop(0)
    head, colon, value = "".join(lines).partition(": ")
    return value.rstrip("\n") if colon and head.split(".")[-1] == name else None


def value_of(kind, value, printed):
    # A __str__ written in Python was already called once to print the exception, and may do anything.
    if isinstance(kind.__str__, type(value_of)):
        text = printed_value(kind.__name__, printed)
        if text is not None:
            return text
    try:
        return str(value)
    except BaseException:
        return "<exception str() failed>"


class Report:
    def __init__(self, sys, os, fd, pipe):
        self.sys, self.os, self.fd, self.pipe = sys, os, fd, pipe

    def show(self, original, kind, value, traceback):
        sys = self.sys
        stream = getattr(sys, "stderr", None)
        if stream is None:
            original(kind, value, traceback)
            self.send(kind, value, traceback, "")
            return
        tee = sys.stderr = Tee(stream)
        try:
            original(kind, value, traceback)
        finally:
            if getattr(sys, "stderr", None) is tee:
                sys.stderr = stream
            self.send(kind, value, traceback, tee.text())

    def send(self, kind, value, traceback, printed):
        try:
            if not printed:  # there is no stderr that takes it
                printed = formatted(kind, value, traceback)
            # The program may have closed the pipe and opened a file of its own in its place.
            now = self.os.fstat(self.fd)
            if (now.st_dev, now.st_ino, now.st_mode) != (self.pipe.st_dev, self.pipe.st_ino, self.pipe.st_mode):
                return
            parts = [
                encode(kind.__name__, MAX_NAME),
                encode(value_of(kind, value, printed), MAX_VALUE),
                encode_ends(printed, MAX_TRACEBACK),
            ]
            record = b"HUTCHPY1" + b"".join([len(part).to_bytes(4, "little") for part in parts]) + b"".join(parts)
            while record:
                record = record[self.os.write(self.fd, record) :]
            self.os.close(self.fd)
        except BaseException:
            pass
