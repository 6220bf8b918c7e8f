# Widgets of a notebook, as nbclient knows them without a front end: the state of their models, which a notebook keeps
# in its metadata, and what Output widgets show, who take what is said while they are entered. Only for cells that are
# ordered with "widgets"; elsewhere nobody shows a widget, and what it took would be lost.
import json
import _thread

import channel

ID_MAX = 256  # characters of a model's id; one with a longer one is not known
MEMBERS_MAX = 10000  # of one state
WAITING_MAX = 1 << 20  # bytes of text that wait for a flush
CAPTURED_MAX = channel.FRAME_MAX  # characters that one Output widget takes; what is beyond is the cell's output
MODEL = ("@jupyter-widgets/output", "OutputModel")
TARGET = "jupyter.widget"
STREAMS = {"stdout": 1, "stderr": 2}
TAKEN = ("stream", "display_data", "execute_result", "error")


def cleaned(value):
    """A copy of @value as JSON has it, and whether it was JSON already."""
    from jupyter_client.jsonutil import json_clean, json_default

    try:
        return json.loads(json.dumps(value, default=json_default, allow_nan=False)), True
    except (TypeError, ValueError):
        return json.loads(json.dumps(json_clean(value), default=json_default, allow_nan=False)), False


class Output:
    """A front end's half of an Output widget."""

    def __init__(self, widgets, comm_id, state):
        self.widgets, self.comm_id = widgets, comm_id
        outputs = state.get("outputs")
        self.outputs = list(outputs) if isinstance(outputs, list) else []
        self.pieces = None  # the text of the last output, which is a stream's
        self.size = 0
        self.execution = None  # whose outputs it takes
        self.is_cleared_later = self.is_changed = False

    def set_state(self, state):
        if "msg_id" not in state:
            return
        stack = self.widgets.takers.get(self.execution, [])
        if state["msg_id"]:
            self.execution = str(state["msg_id"])
            self.widgets.takers.setdefault(self.execution, []).append(self)
        elif self in stack:
            del stack[len(stack) - 1 - stack[::-1].index(self)]

    def clear(self, wait):
        if wait:
            self.is_cleared_later = True
        else:
            self.outputs, self.pieces, self.size = [], None, 0
            self.change()

    def change(self):
        self.is_changed = True
        self.widgets.changed[self.comm_id] = None

    def take(self, size):
        """Whether there is room."""
        if self.is_cleared_later:
            self.is_cleared_later = False
            self.clear(False)
        if size > CAPTURED_MAX - self.size:
            return False
        self.size += size
        self.change()
        return True

    def add_text(self, name, text):
        if not self.take(len(text)):
            return False
        last = self.outputs[-1] if self.outputs else None
        if not self.is_stream(last, name):
            self.end_text()
            self.outputs.append({"output_type": "stream", "name": name, "text": ""})
        if self.pieces is None:
            self.pieces = []
        self.pieces.append(text)
        return True

    def is_stream(self, output, name):
        """The first outputs are whatever the program says."""
        return isinstance(output, dict) and output.get("name") == name and isinstance(output.get("text"), str)

    def add(self, kind, frame, size):
        """What would be a frame of the cell's."""
        if not self.take(size):
            return False
        self.end_text()
        names = ("ename", "evalue", "traceback") if kind == "error" else ("data", "metadata")
        output = {name: frame[name] for name in names}
        if kind == "execute_result":
            output["execution_count"] = frame["count"]
        self.outputs.append(dict(output, output_type=kind))
        return True

    def end_text(self):
        if self.pieces is not None:
            self.outputs[-1]["text"] += "".join(self.pieces)
        self.pieces = None

    def shown(self):
        self.end_text()
        return self.outputs


class Widgets:
    def __init__(self, link):
        self.link = link
        self.is_on = False
        self.deaf_thread = None  # what it says is nobody's
        self.execution = None  # the id of the message that has ordered the cell
        self.states, self.buffers = {}, {}  # by the id of the comm
        self.outputs = {}
        self.takers = {}  # by the id of an execution: Output widgets that are entered, the last one takes
        self.changed = {}
        self.waiting = {"stdout": bytearray(), "stderr": bytearray()}  # not flushed yet, so not anybody's

    def begin(self, is_on, execution):
        self.is_on, self.execution = is_on, execution

    # --- what is said ---

    def is_deaf(self):
        return self.deaf_thread is not None and self.deaf_thread == _thread.get_ident()

    def hear(self, kind, content, buffers):
        """A message of a comm. Whether nothing was wrong with it."""
        comm_id, data = content.get("comm_id"), content.get("data")
        if not isinstance(comm_id, str) or len(comm_id) > ID_MAX or not isinstance(data, dict):
            return True
        state, is_clean = cleaned(data.get("state")) if "state" in data else (None, True)
        if isinstance(state, dict):
            self.states.setdefault(comm_id, {}).update(state)
            self.changed[comm_id] = None
            self.keep_buffers(comm_id, data.get("buffer_paths") or (), buffers or ())
        if kind == "comm_open" and content.get("target_name") == TARGET and isinstance(state, dict):
            if (state.get("_model_module"), state.get("_model_name")) == MODEL:
                self.outputs[comm_id] = Output(self, comm_id, state)
        elif kind == "comm_msg" and comm_id in self.outputs and isinstance(state, dict):
            self.outputs[comm_id].set_state(state)
        return is_clean

    def keep_buffers(self, comm_id, paths, buffers):
        import base64

        known = self.buffers.setdefault(comm_id, {})
        for path, buffer in zip(paths, buffers):
            text = base64.b64encode(buffer).decode("ascii")
            path = cleaned(path)[0]
            known[json.dumps(path)] = {"data": text, "encoding": "base64", "path": path}

    def taker(self, execution):
        stack = self.takers.get(execution) if self.is_on else None
        return stack[-1] if stack else None

    def take_text(self, name, data):
        """Whether what was written is, or will be, an Output widget's. As in a kernel, each stream is cut where it is
        flushed."""
        if self.is_deaf():
            return True
        if self.taker(self.execution) is None:
            self.flush(name)
            return False
        self.waiting[name] += data
        if len(self.waiting[name]) > WAITING_MAX:
            self.flush(name)
        return True

    def flush(self, name):
        if not self.waiting[name]:
            return
        data = bytes(self.waiting[name])
        self.waiting[name].clear()
        taker = self.taker(self.execution)
        if taker is None or not taker.add_text(name, data.decode("utf-8", "replace")):
            self.link.write(STREAMS[name], data)

    # --- what is told ---

    def end(self, manager, session):
        """The cell is over: its front end tells the program what Output widgets show, and the engine hears of models
        that have changed."""
        changed, self.changed = self.changed, {}
        for comm_id in changed:
            output = self.outputs.get(comm_id)
            if output is not None and output.is_changed:
                output.is_changed = False
                self.states[comm_id]["outputs"] = output.shown()
                self.tell_program(manager, session, comm_id, output.outputs)
        for comm_id in changed:
            self.tell_engine(comm_id)

    def tell_program(self, manager, session, comm_id, outputs):
        """What that makes it say is nobody's."""
        data = {"method": "update", "state": {"outputs": cleaned(outputs)[0]}, "buffer_paths": []}
        message = session.msg("comm_msg", content={"comm_id": comm_id, "data": data})
        message.update(buffers=[], parent_header={})
        self.deaf_thread = _thread.get_ident()
        try:
            manager.comm_msg(None, [], message)
        finally:
            channel.flush_streams()
            self.deaf_thread = None

    def tell_engine(self, comm_id):
        state, buffers = self.states[comm_id], list(self.buffers.get(comm_id, {}).values())
        frame = {"is": "widget", "id": comm_id, "state": state, "buffers": buffers}
        text = channel.encode(frame)
        if len(text) > channel.FRAME_MAX or len(state) > MEMBERS_MAX or len(buffers) > MEMBERS_MAX:
            text = channel.encode(dict(frame, state={}, buffers=[], omitted=len(text)))
        self.link.send_text(text)


def adopt_comms(manager):
    """Newer ipykernels take comms from a package of their own, which is told by a module that is not imported here who
    makes them."""
    try:
        import comm
    except ImportError:
        return
    from ipykernel.comm import Comm

    comm.create_comm = Comm
    comm.get_comm_manager = lambda: manager
