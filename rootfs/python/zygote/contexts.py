# Contexts: several separate sets of variables in one interpreter. Each has its own __main__, inputs and outputs, and
# count; only one is in place at a time.
import os
import sys

MAIN = "main"
MAX = 16  # with "main"
IN_SHELL = ("user_module", "user_ns", "user_ns_hidden", "ns_table", "execution_count")
IN_HISTORY = ("input_hist_parsed", "input_hist_raw", "output_hist", "output_hist_reprs", "dir_hist", "session_number",
              "_i", "_ii", "_iii", "_i00")  # fmt: skip
IN_HOOK = ("_", "__", "___")


def working_directory():
    """None where the program has removed it."""
    try:
        return os.getcwd()
    except OSError:
        return None


class Contexts:
    def __init__(self, shell):
        self.shell = shell
        self.present = MAIN
        self.others = {}  # name -> what save() returns
        self.has_database = True
        self.origin = working_directory()
        self.origins = {}  # name -> the directory in which it began, where that is another one
        self.directories = {}  # name -> where it was when it was left

    def places(self):
        return (
            (self.shell, IN_SHELL),
            (self.shell.history_manager, IN_HISTORY),
            (self.shell.displayhook, IN_HOOK),
        )

    def save(self):
        return [(thing, {name: getattr(thing, name) for name in names}) for thing, names in self.places()]

    def restore(self, state):
        for thing, values in state:
            for name, value in values.items():
                setattr(thing, name, value)
        sys.modules["__main__"] = self.shell.user_module

    def must_know(self, name):
        if name != self.present and name not in self.others and name != MAIN:
            raise LookupError("there is no context %s" % name)

    def enter_known(self, name):
        self.must_know(name)
        self.enter(name)

    def enter(self, name, directory=None):
        """Nothing has changed when it raises: there are too many, or the directory cannot be entered."""
        is_new = name != self.present and name not in self.others
        if is_new and len(self.others) + 1 >= MAX:
            raise RuntimeError("there are %d contexts, which is the most that a session may have" % MAX)
        if name == self.present and directory is None:
            return
        left = working_directory()
        if directory is not None:
            os.chdir(directory)
        if name == self.present:
            return
        if is_new and directory is not None:
            self.origins[name] = directory
        if directory is None:
            self.change_to(self.directories.get(name, self.origin), left)
        self.directories[self.present] = left
        if self.has_database:
            self.shell.history_manager.writeout_cache()  # lines are known by the session's number
        self.others[self.present] = self.save()
        self.present = name
        if is_new:
            self.create()
        else:
            self.restore(self.others.pop(name))

    def change_to(self, directory, present=None):
        for place in (directory, self.origin):
            if place == present:
                return
            try:
                os.chdir(place)
                return
            except (OSError, TypeError):
                pass  # the program has removed it

    def reset(self, name):
        self.enter_known(name)
        self.change_to(self.origins.get(name, self.origin))
        if self.has_database:
            self.shell.history_manager.writeout_cache()
        self.create()

    def drop(self, name):
        self.must_know(name)
        if name == self.present:
            self.enter(MAIN)
        for known in (self.others, self.origins, self.directories):
            known.pop(name, None)

    def create(self):
        from pathlib import Path

        shell, history, hook = self.shell, self.shell.history_manager, self.shell.displayhook
        shell.user_module, shell.user_ns = shell.prepare_user_module()
        shell.user_ns_hidden = {}
        shell.ns_table = dict(shell.ns_table, user_global=shell.user_module.__dict__, user_local=shell.user_ns)
        shell.execution_count = 1
        history.input_hist_parsed, history.input_hist_raw, history.output_hist = [""], [""], {}
        history.output_hist_reprs = type(history.output_hist_reprs)()
        history.dir_hist = [Path.cwd()]
        history._i = history._ii = history._iii = history._i00 = ""
        if self.has_database:
            history.new_session()
        hook._ = hook.__ = hook.___ = ""
        shell.user_ns.update({"_": "", "__": "", "___": ""})
        shell.init_user_ns()
        sys.modules["__main__"] = shell.user_module
