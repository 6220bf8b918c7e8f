# Calls from a cell to the caller of libhutch, and what else a cell waits for from outside: input(). A call is answered
# by an order, which is read by whichever thread waits: the first one reads for all. A coroutine waits by the event loop
# of the interpreter.
import os
import sys

import channel
import values

# Seconds. A thread that waits finds out that its cell is over; and the main thread, that it was interrupted: Python
# loses the wakeup by a signal that comes between its last look at signals and the system call.
LOOK_AGAIN = 0.2
INPUT = "input"  # what the answer to input() waits under; the number of a call is an integer
COROUTINE = 0x80 | 0x200  # inspect.CO_COROUTINE, CO_ASYNC_GENERATOR
COMPREHENSIONS = ("<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>", "<lambda>")


class CallError(RuntimeError):
    """The other side's word for what went wrong."""


class Waiter:
    def __init__(self):
        self.order = None
        self.future = None


class Mail:
    def __init__(self, link):
        self.link = link
        self.renew()

    def renew(self):
        """Nobody waits, as in a new process."""
        import threading

        self.condition = threading.Condition()
        self.waiting = {}
        self.reader = None  # the thread that waits for the socket

    def expect(self, key):
        waiter = self.waiting[key] = Waiter()
        return waiter

    def forget(self, key):
        self.waiting.pop(key, None)

    def deliver(self, order):
        """With the condition held."""
        key = order.get("id") if order.get("do") == "answer" else INPUT if order.get("do") == "reply" else None
        waiter = self.waiting.pop(key, None)
        if waiter is None:
            return
        waiter.order = order
        if waiter.future is not None:
            waiter.future.get_loop().call_soon_threadsafe(settle, waiter.future)

    def take(self):
        """The same: one order, if there is one."""
        try:
            order = self.link.receive_in_cell()
        except channel.Closed:
            os._exit(0)  # the engine is gone
        if order is not None:
            self.deliver(order)

    def wait(self, waiter):
        """In any thread. Returns the order. What comes after a cell is for the next, so a thread that still waits then
        takes nothing; it finds out when it looks again. The cell does not end while its main thread waits."""
        import select
        import threading

        own = threading.get_ident()
        while True:
            with self.condition:
                while waiter.order is None and self.reader not in (None, own):
                    self.condition.wait(LOOK_AGAIN)
                if waiter.order is not None:
                    return waiter.order
                self.reader = own
            try:
                select.select([channel.SOCKET], [], [], LOOK_AGAIN)
                with self.condition:
                    if waiter.order is None:
                        self.take()
            finally:
                with self.condition:
                    if self.reader == own:
                        self.reader = None
                    self.condition.notify_all()

    def take_if_free(self):
        """The socket is readable; if a thread waits for it, that one takes what there is."""
        with self.condition:
            if self.reader is None:
                self.take()
                self.condition.notify_all()

    def end(self, why):
        """Calls that still wait are told that it is over."""
        with self.condition:
            for key in [key for key in self.waiting if key != INPUT]:
                self.deliver({"do": "answer", "id": key, "error": True, "value": why})
            self.condition.notify_all()


def settle(future):
    if not future.done():
        future.set_result(None)


class Calls:
    """Of one interpreter; what a cell may call is declared with it."""

    def __init__(self, mail, shell):
        self.mail, self.shell = mail, shell
        self.count = 0  # numbers of calls are never used again
        self.placed = []  # (namespace, name, function, what was there before)
        self.loop = None
        self.is_open = False
        self.pid = None

    def begin(self, declared, loop):
        """[[name, whether it is awaited; None: as the place of the call is]]"""
        self.loop, self.is_open, self.pid = loop, True, os.getpid()
        space, missing = self.shell.user_ns, values.Unfit
        for name, is_async in declared:
            function = make_function(self, name, is_async)
            self.placed.append((space, name, function, space.get(name, missing)))
            space[name] = function

    def end(self):
        self.is_open = False
        if self.loop is not None and self.count:
            self.loop.remove_reader(channel.SOCKET)
        for space, name, function, before in reversed(self.placed):
            if space.get(name) is function:
                del space[name]
                if before is not values.Unfit:
                    space[name] = before
        self.placed = []
        self.mail.end('"the cell that has called is over"')

    def send(self, name, args, named):
        """Returns its number, and what waits for the answer."""
        if not self.is_open:
            raise RuntimeError("%s() can be called only while the cell runs that may" % name)
        if os.getpid() != self.pid:
            raise RuntimeError("%s() cannot be called in a child process" % name)
        text = values.as_json({"args": list(args), "kwargs": named})
        if text is None:
            raise TypeError("the arguments of %s() are not what JSON can say, or too much" % name)
        with self.mail.condition:
            self.count += 1
            key = self.count
            waiter = self.mail.expect(key)
        channel.flush_streams()
        self.mail.link.send({"is": "call", "id": key, "name": name, "args": text})
        return key, waiter

    def call(self, name, args, named):
        key, waiter = self.send(name, args, named)
        try:
            return result_of(self.mail.wait(waiter))
        finally:
            self.mail.forget(key)

    def call_async(self, name, args, named):
        """The call is made at once; a coroutine that waits for its answer."""
        import asyncio

        key, waiter = self.send(name, args, named)
        loop = asyncio.get_running_loop()

        async def answer():
            try:
                if loop is self.loop:
                    with self.mail.condition:
                        if waiter.order is None:
                            waiter.future = loop.create_future()
                    if waiter.future is not None:
                        loop.add_reader(channel.SOCKET, self.mail.take_if_free)
                        await waiter.future
                else:
                    await loop.run_in_executor(None, self.mail.wait, waiter)
                return result_of(waiter.order)
            finally:
                self.mail.forget(key)

        return answer()


def result_of(order):
    import json

    value = json.loads(order.get("value") or "null")
    if order.get("error"):
        raise CallError(value if isinstance(value, str) else json.dumps(value))
    return value


def is_in_coroutine(frame):
    """Whether what is called there would be awaited: a comprehension belongs to the code around it."""
    while frame.f_code.co_name in COMPREHENSIONS and frame.f_back is not None:
        frame = frame.f_back
    return bool(frame.f_code.co_flags & COROUTINE)


def make_function(calls, name, is_async):
    def function(*args, **named):
        if is_async or (is_async is None and is_in_coroutine(sys._getframe(1))):
            return calls.call_async(name, args, named)
        return calls.call(name, args, named)

    function.__name__ = function.__qualname__ = name
    function.__module__ = "__main__"
    function.__doc__ = "Calls the program that has ordered this cell, and returns the answer."
    return function
