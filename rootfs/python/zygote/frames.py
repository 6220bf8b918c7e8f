# The frames below a cell. Programs see them, by traceback.print_stack() and inspect, in warnings with a stacklevel, and
# as the depth at which recursion ends. So there are as many as in a kernel that nbclient has started, under the names
# of these and at their lines: each function of ours that is on the stack stands in the place of one of ipykernel's.
import functools
import os
import sys
import types

HERE = os.path.dirname(__file__) + "/"

# From the outermost on: module, function, and what it calls there. Of several calls the last, or the one that a number
# says; None: the last "await".
LAUNCH = (
    ("runpy", "_run_module_as_main", "_run_code", -1),
    ("runpy", "_run_code", "exec", -1),
    ("ipykernel_launcher", "", "launch_new_instance", -1),
    ("traitlets.config.application", "Application.launch_instance", "start", -1),
    ("ipykernel.kernelapp", "IPKernelApp.start", "start", -1),
    ("tornado.platform.asyncio", "BaseAsyncIOLoop.start", "run_forever", -1),
)
DISPATCH = (
    ("ipykernel.kernelbase", "Kernel.dispatch_queue", None, -1),
    ("ipykernel.kernelbase", "Kernel.process_one", None, -1),
    ("ipykernel.kernelbase", "Kernel.dispatch_shell", None, -1),
    ("ipykernel.ipkernel", "IPythonKernel.execute_request", None, -1),  # from 6.29 on
    ("ipykernel.kernelbase", "Kernel.execute_request", None, -1),
    ("ipykernel.ipkernel", "IPythonKernel.do_execute", "run_cell", -2),
)
placed = set()  # ids of code objects, all of which live as long as the interpreter


def is_ours(frame):
    return id(frame.f_code) in placed or frame.f_code.co_filename.startswith(HERE)


def is_kernel_without_frozen():
    """Whether the image's kernel has the modules of the standard library from their files, as debuggers want it."""
    try:
        with open(sys.prefix + "/share/jupyter/kernels/python3/kernel.json", encoding="utf-8") as file:
            return "-Xfrozen_modules=off" in file.read()
    except OSError:
        return False


def find_code(module, function):
    """The code of a function whose module need not be imported. Raises where there is none."""
    import importlib.machinery
    import importlib.util

    spec = importlib.util.find_spec(module)
    if spec.origin == "frozen" and is_kernel_without_frozen():
        spec = importlib.machinery.PathFinder.find_spec(module)
    code = spec.loader.get_code(module)
    for name in function.split(".") if function else ():
        code = next(const for const in code.co_consts if isinstance(const, types.CodeType) and const.co_name == name)
    return code


def find_line(code, called, which):
    import dis

    lines, line = [], code.co_firstlineno
    for instruction in dis.get_instructions(code):
        line = getattr(instruction, "line_number", instruction.starts_line) or line  # Python 3.13, and before
        is_call = instruction.opname == "GET_AWAITABLE" if called is None else instruction.argval == called
        if is_call and line not in lines:
            lines.append(line)
    return lines[which]


def on_one_line(code):
    """A table of lines, as in Objects/locations.md of CPython 3.11, in which all of @code is on its first line."""
    units, table = len(code.co_code) // 2, bytearray()
    while units > 0:
        length = min(units, 8)
        table += bytes((0x80 | 13 << 3 | length - 1, 0))
        units -= length
    return bytes(table)


def put(function, place):
    """@function is on the stack as if it was what stands at @place, which is told; as itself where there is no such
    thing."""
    module, name, called, which = place
    try:
        code = find_code(module, name)
        line = find_line(code, called, which)
    except (ImportError, StopIteration, LookupError, OSError, ValueError):
        return False
    own = function.__code__
    function.__code__ = own.replace(
        co_filename=code.co_filename,
        co_name=code.co_name,
        co_qualname=code.co_qualname,
        co_firstlineno=line,
        co_linetable=on_one_line(own),
    )
    function.__name__, function.__qualname__ = code.co_name, code.co_qualname
    placed.add(id(function.__code__))
    return True


def call(following, function):
    return following[0](following[1:], function) if following else function()


def call_alone(function):
    return function()


def chain(places):
    """What calls a function through one frame for each place that there is."""
    made = [(types.FunctionType(call.__code__, {"__name__": place[0]}), place) for place in places]
    functions = [function for function, place in made if put(function, place)]
    if not functions:
        return call_alone
    return functools.partial(functions[0], functions[1:])
