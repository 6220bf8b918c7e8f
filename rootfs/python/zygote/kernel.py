# What an IPython shell believes to be its kernel: ipykernel's own classes, but for what they do with sockets and
# threads. They are subclasses under the same names, as programs look at names, and tracebacks show the methods that are
# ipykernel's.
#
# ipykernel is imported only where cells are executed, so the classes are made when they are needed.
import os
import sys
import types

import calls
import channel
import widgets

ID_MAX = 256  # characters of a display's id; one with a longer one is as one without
PORTS = ("shell_port", "iopub_port", "stdin_port", "control_port", "hb_port")
SHOWN = {"execute_result": "result", "display_data": "display", "update_display_data": "update"}


def named_as(original):
    """Decorates a subclass that goes by the name of its parent."""

    def rename(cls):
        cls.__name__, cls.__qualname__, cls.__module__ = original.__name__, original.__qualname__, original.__module__
        cls.__doc__ = original.__doc__
        return cls

    return rename


class NullSocket:
    """In the place of ZMQ's sockets and streams, where something has to be."""

    def send_multipart(self, parts, *_rest, **_named):
        pass

    def flush(self, *_rest, **_named):
        return 0

    closed = False


def encoded_data(data, default):
    """A MIME bundle as JSON text: sorted keys, what has no JSON form by itself as jupyter_client makes it."""
    import json

    text = json.dumps(data, default=default, ensure_ascii=False, allow_nan=False)
    if not all(isinstance(value, str) for value in data.values()) or not all(isinstance(key, str) for key in data):
        data = json.loads(text)  # keys of any kind are strings now, and can be sorted
    return json.dumps(data, default=default, ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":"))


def notice(size):
    return "[output of %d bytes left out: more than %d]" % (size, channel.FRAME_MAX)


def define_session(link, known):
    import json

    from jupyter_client.jsonutil import json_clean, json_default
    from jupyter_client.session import DONE, Session

    def fields_of_display(kind, content):
        """The frame's own part, and its MIME bundle and metadata."""
        data = encoded_data(content["data"], json_default)
        metadata = encoded_data(content["metadata"] or {}, json_default)
        display_id = (content.get("transient") or {}).get("display_id")
        if display_id is not None:
            display_id = str(display_id)
            display_id = display_id if len(display_id) <= ID_MAX else None
        frame = {"is": SHOWN[kind], "id": display_id}
        if kind == "execute_result":
            frame["count"] = content["execution_count"]
        return frame, data, metadata

    def text_of(kind, content):
        if kind == "error":
            frame = {"is": "error", "ename": content["ename"], "evalue": content["evalue"]}
            frame["traceback"] = [str(line) for line in content["traceback"] or ()]  # exceptions may render their own
            text = json.dumps(frame, ensure_ascii=False)
            if len(text) > channel.FRAME_MAX:
                frame.update(evalue=channel.shortened(frame["evalue"]), traceback=[notice(len(text))])
                frame["omitted"] = len(text)
                text = json.dumps(frame, ensure_ascii=False)
            return text
        if kind == "clear_output":
            return json.dumps({"is": "clear", "wait": bool(content.get("wait"))})
        frame, data, metadata = fields_of_display(kind, content)
        size = len(data) + len(metadata)
        if size > channel.FRAME_MAX:
            frame["omitted"], data, metadata = size, json.dumps({"text/plain": notice(size)}), "{}"
        return '%s,"data":%s,"metadata":%s}' % (json.dumps(frame, ensure_ascii=False)[:-1], data, metadata)

    def attempt(kind, content):
        """As json_packer() in jupyter_client/session.py goes about it: the text or None, and whether nothing is wrong
        with it."""
        try:
            return text_of(kind, content), True
        except (TypeError, ValueError, LookupError):
            pass
        try:
            return text_of(kind, json_clean(content)), False
        except Exception:
            return None, False

    def send_stream(content):
        """As if it was written: one after the other, with what was."""
        fd = 2 if content.get("name") == "stderr" else 1
        data = encode(str(content.get("text", "")))
        channel.flush_streams()
        if not known.take_text("stderr" if fd == 2 else "stdout", data):
            link.write(fd, data)
            link.flush(fd)
        else:
            known.flush("stderr" if fd == 2 else "stdout")

    def send_shown(kind, content, taker):
        """Whether nothing is wrong with it."""
        text, is_clean = attempt(kind, content)
        if text is None:
            return is_clean
        is_taken = False
        if taker is not None and kind == "clear_output":
            taker.clear(bool(content.get("wait")))
            is_taken = True
        elif taker is not None and kind in widgets.TAKEN:
            is_taken = taker.add(kind, json.loads(text), len(text))
        if not is_taken:
            link.send_text(text.encode("utf-8", "replace"))
        return is_clean

    @named_as(Session)
    class HutchSession(Session):
        """Whatever is sent becomes a frame of the cell's."""

        def send(self, stream, msg_or_type, content=None, parent=None, ident=None, *rest, **named):
            if os.getpid() != self.pid:
                return super().send(stream, msg_or_type, content, parent, ident, *rest, **named)  # it has a warning
            message = msg_or_type
            if not isinstance(message, dict):
                more = {key: value for key, value in named.items() if key in ("header", "metadata")}
                message = self.msg(msg_or_type, content=content, parent=parent, **more)
            kind, content, is_clean = message["header"]["msg_type"], message["content"], True
            if known.is_deaf():
                pass
            elif kind == "stream":
                send_stream(content)
            elif kind in SHOWN or kind in ("clear_output", "error"):
                is_clean = send_shown(kind, content, known.taker((message.get("parent_header") or {}).get("msg_id")))
            elif kind in ("comm_open", "comm_msg") and known.is_on:  # else no front end shows a widget
                is_clean = known.hear(kind, content, named.get("buffers") or (rest[0] if rest else ()))
            if not is_clean:  # it warns, or fails, in its own words
                super().send(NullSocket(), message, ident=ident)
            message["tracker"] = DONE
            return message

    return HutchSession


def define_stream(link, known):
    from ipykernel.iostream import OutStream

    @named_as(OutStream)
    class HutchStream(OutStream):
        """Text that goes to the pipe at once, where C code's and other processes' output goes as well. flush() ends a
        message, as it does in a kernel."""

        parent_header = None  # there is one thread's, where ipykernel has one for each from 6.29 on

        def __init__(self, session, name, fd):
            self.session, self.name, self.topic = session, name, b"stream." + name.encode()
            self.parent_header, self.echo, self._exc, self._isatty = {}, None, None, False
            self.pub_thread = NullSocket()  # None: closed
            self._fd = fd
            self._master_pid = os.getpid()

        def fileno(self):
            return self._fd

        def write(self, string):
            if not isinstance(string, str) or self.pub_thread is None:
                return super().write(string)  # raises
            data = encode(string)
            if not known.take_text(self.name, data):
                link.write(self._fd, data)
            return len(string)

        def flush(self):
            if self.pub_thread is not None:
                known.flush(self.name)
                link.flush(self._fd)

        def close(self):
            self.pub_thread = None

    return HutchStream


def encode(string):
    try:
        return string.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return string.encode("utf-8", "replace")


def define_kernel(link):
    from ipykernel.kernelbase import Kernel
    from IPython.core import release
    from traitlets import Any, Instance, Unicode
    from traitlets.config import Application

    class IPythonKernel(Kernel):
        shell = Instance("IPython.core.interactiveshell.InteractiveShellABC", allow_none=True)
        user_module = Any()
        user_ns = Instance(dict, args=None, allow_none=True)
        comm_manager = Any()
        implementation = "ipython"
        implementation_version = release.version
        language_info = {
            "name": "python",
            "version": sys.version.split()[0],
            "mimetype": "text/x-python",
            "codemirror_mode": {"name": "ipython", "version": sys.version_info[0]},
            "pygments_lexer": "ipython%d" % 3,
            "nbconvert_exporter": "python",
            "file_extension": ".py",
        }

        @property
        def banner(self):
            return self.shell.banner

        @property
        def execution_count(self):
            return self.shell.execution_count

        @execution_count.setter
        def execution_count(self, value):
            pass

        def enter_eventloop(self):
            pass  # %gui: asyncio's is always running, and there is no display for others

        def _input_request(self, prompt, ident, parent, password=False):
            channel.flush_streams()
            try:
                answer = link.mail.expect(calls.INPUT)
                link.send({"is": "input", "prompt": channel.shortened(str(prompt)), "password": bool(password)})
                order = link.mail.wait(answer)
            except KeyboardInterrupt:
                raise KeyboardInterrupt("Interrupted by user") from None
            finally:
                link.mail.forget(calls.INPUT)
            if order.get("eof") or order.get("value") == "\x04":
                raise EOFError
            return order.get("value", "")

    class IPKernelApp(Application):
        """What there is of an application: nothing listens, so there is nothing to connect to."""

        name = "ipython-kernel"
        connection_file = Unicode("").tag(config=True)
        kernel, shell, session, profile_dir = Any(), Any(), Any(), Any()
        profile = Unicode("default")
        transport, ip, kernel_name = "tcp", "127.0.0.1", ""
        shell_port = iopub_port = stdin_port = control_port = hb_port = 0

        @property
        def abs_connection_file(self):
            return os.path.abspath(self.connection_file)

        @property
        def connection_dir(self):
            from jupyter_core.paths import jupyter_runtime_dir

            return jupyter_runtime_dir()

        def get_connection_info(self, session=False):
            info = {name: getattr(self, name) for name in ("transport", "ip", *PORTS)}
            if session:
                return dict(info, session=self.session)
            return dict(info, signature_scheme=self.session.signature_scheme, key=self.session.key)

    for cls, module in ((IPythonKernel, "ipykernel.ipkernel"), (IPKernelApp, "ipykernel.kernelapp")):
        cls.__module__, cls.__qualname__ = module, cls.__name__
    return IPythonKernel, IPKernelApp


def connection_text(app):
    """The file that tells others how to reach a kernel."""
    import json

    told = {name: getattr(app, name) for name in PORTS}
    told.update(ip=app.ip, key=app.session.key.decode("ascii"), transport=app.transport)
    told.update(signature_scheme=app.session.signature_scheme, kernel_name=app.kernel_name)
    return json.dumps(told, indent=2)


def define_module(app_class):
    """ipykernel.kernelapp with the one class that programs ask whether they are in a kernel. The real module imports
    a debugger, which takes half a second and complains; it takes over when anything else of it is used."""
    import importlib.util

    name = app_class.__module__
    module = types.ModuleType(name)
    module.__spec__ = importlib.util.find_spec(name)
    module.__file__, module.__package__ = getattr(module.__spec__, "origin", None), name.rpartition(".")[0]
    module.IPKernelApp = app_class

    def load(attribute):
        if attribute.startswith("__"):
            raise AttributeError("module %r has no attribute %r" % (name, attribute))
        if sys.modules.get(name) is module:
            del sys.modules[name]
        real = importlib.import_module(name)
        real.IPKernelApp = app_class
        return getattr(real, attribute)

    module.__getattr__ = load
    return module


def make(link, profile_dir, config):
    """The kernel, its session, and the class of its streams."""
    import logging

    from ipykernel.comm.manager import CommManager

    log = logging.Logger("IPKernelApp", logging.WARNING)  # whose messages no notebook has
    log.addHandler(logging.NullHandler())
    null_socket = NullSocket()
    known = widgets.Widgets(link)
    session = define_session(link, known)(key=b"none", session="none")
    kernel_class, app_class = define_kernel(link)
    kernel = kernel_class(
        config=config,
        log=log,
        session=session,
        profile_dir=profile_dir,
        iopub_socket=null_socket,
        stdin_socket=null_socket,
        ident="none",
    )
    kernel.comm_manager = CommManager(parent=kernel, kernel=kernel)
    widgets.adopt_comms(kernel.comm_manager)
    app = app_class(config=config, log=log, kernel=kernel, session=session, profile_dir=profile_dir)
    kernel.parent = app
    return types.SimpleNamespace(
        kernel=kernel,
        app=app,
        app_module=define_module(app_class),
        session=session,
        stream_class=define_stream(link, known),
        widgets=known,
        null_socket=null_socket,
    )
