# Open files in a copy of the interpreter. A fork shares each position in a file with its original, and a roll back puts
# other files in the place of those in the data directory. So what is open is noted when a copy is parked, and opened
# anew by its path in what goes on from there: under the same number, in the same way, at the same position.
import os
import stat
import sys

import uncopied

DATA = "/mnt/data"
NOT_FILES = ("/proc/", "/sys/", "/dev/")
KEPT_FLAGS = (
    os.O_ACCMODE | os.O_APPEND | os.O_NONBLOCK | os.O_SYNC | os.O_DSYNC | os.O_NOATIME | os.O_DIRECT
)
SQLITE = b"SQLite format 3\0"


class OpenFile:
    """One descriptor."""

    def __init__(self, fd):
        for line in uncopied.read("/proc/self/fdinfo/%d" % fd).split(b"\n"):
            if line.startswith(b"pos:"):
                self.position = int(line.split()[1])
            elif line.startswith(b"flags:"):
                flags = int(line.split()[1], 8)
        self.fd, self.flags, self.status = fd, flags & KEPT_FLAGS, os.fstat(fd)
        self.is_inheritable = not flags & os.O_CLOEXEC
        self.path = os.readlink("/proc/self/fd/%d" % fd)
        self.is_data = (self.path + "/").startswith(DATA + "/")
        try:
            self.has_name = self.is_same(os.stat(self.path))
        except OSError:
            self.has_name = False

    def is_same(self, status):
        return (status.st_dev, status.st_ino) == (self.status.st_dev, self.status.st_ino)

    def is_written(self):
        return self.flags & os.O_ACCMODE != os.O_RDONLY

    def is_file(self):
        """Nothing else has a position of its own: a pipe is its other end's too."""
        kind = self.status.st_mode
        return stat.S_ISREG(kind) and not self.path.startswith(NOT_FILES) or stat.S_ISDIR(kind) and self.is_data

    def reopen(self):
        """A descriptor for the same file as it is now."""
        path = self.path if self.is_data and self.has_name else "/proc/self/fd/%d" % self.fd
        fd = os.open(path, self.flags | os.O_NONBLOCK | os.O_CLOEXEC)  # a FIFO may have its name now
        status = os.fstat(fd)
        if stat.S_IFMT(status.st_mode) != stat.S_IFMT(self.status.st_mode):
            os.close(fd)
            raise OSError("it is of another kind")
        if not self.flags & os.O_NONBLOCK:
            os.set_blocking(fd, True)
        if stat.S_ISREG(status.st_mode):
            os.lseek(fd, self.position, os.SEEK_SET)
        return fd

    def put(self, fd):
        """@fd, which is closed, in its place."""
        os.dup2(fd, self.fd, inheritable=self.is_inheritable)
        os.close(fd)

    def invalidate(self):
        """Whoever reads or writes it gets EBADF."""
        self.put(os.open("/", os.O_PATH | os.O_CLOEXEC))

    def shares_position(self, other):
        """Whether one is a duplicate of the other."""
        if not self.is_same(other.status) or self.flags != other.flags or not stat.S_ISREG(self.status.st_mode):
            return False
        before = os.lseek(self.fd, 0, os.SEEK_CUR)
        position = os.lseek(other.fd, 0, os.SEEK_CUR)
        os.lseek(self.fd, before + 1, os.SEEK_SET)
        is_shared = os.lseek(other.fd, 0, os.SEEK_CUR) != position
        os.lseek(self.fd, before, os.SEEK_SET)
        return is_shared


def list_mapped():
    """Files of the data directory that are mapped for writing, or to see what others write."""
    return {path for rights, path in uncopied.mapped_files() if rights.endswith("s") and path.startswith(DATA + "/")}


class Files:
    """What is open, when a copy is parked."""

    def __init__(self, own):
        """@own are descriptors that are no concern of the program's."""
        self.open, self.mapped, self.directory = [], set(), None
        for name in os.listdir("/proc/self/fd"):
            try:
                if int(name) not in own:
                    file = OpenFile(int(name))
                    self.open += [file] if file.is_file() else []
            except (OSError, ValueError):
                pass  # the one that listdir() had
        try:
            self.mapped, self.directory = list_mapped(), os.getcwd()
        except OSError:
            pass  # it was removed
        self.scratch = uncopied.list_scratch()

    def list_uncopied(self):
        """What is known already when the copy is parked."""
        sentences = ["a file that is mapped into memory: " + uncopied.shortened(path) for path in sorted(self.mapped)]
        for file in self.open:
            if file.is_written() and not (file.is_data and file.has_name):
                sentences.append("what is written to an open file: " + uncopied.shortened(file.path))
        return sentences

    def renew(self):
        """In the copy, when the files are in their place. Returns sentences on what could not be renewed."""
        sentences, renewed = [], []
        for file in self.open:
            try:
                if not file.is_same(os.fstat(file.fd)):
                    continue  # another thread was at it when the copy was made
                first = next((one for one, _ in renewed if file.shares_position(one)), None)
                renewed.append((file, first))
            except OSError:
                pass
        for file, first in renewed:
            try:
                file.put(os.dup(first.fd) if first else file.reopen())
            except OSError as error:
                file.invalidate()
                sentences.append("an open file: %s: %s" % (uncopied.shortened(file.path), error.strerror or error))
        sentences += self.look_at_databases([file for file, _ in renewed])
        return sentences + self.enter_directory() + uncopied.list_changed_scratch(self.scratch)

    def look_at_databases(self, renewed):
        """SQLite writes to no file that has moved; and where it keeps an index in memory, that is of the file of
        before."""
        if "_sqlite3" not in sys.modules:
            return []
        found = {}
        for file in renewed:
            if file.is_data and stat.S_ISREG(file.status.st_mode) and not file.is_same(os.fstat(file.fd)):
                try:
                    if os.pread(file.fd, len(SQLITE), 0) == SQLITE:
                        found.setdefault(file.path, []).append(file)
                except OSError:
                    pass  # it is open for writing only
        for path, files in found.items():
            if path + "-shm" in self.mapped:
                for file in files + [file for file in renewed if file.path in (path + "-wal", path + "-shm")]:
                    file.invalidate()
        told = "an open connection to a database, which may fail: connect anew to %s"
        return [told % uncopied.shortened(path) for path in found]

    def enter_directory(self):
        """That of before may be a removed one by now."""
        if self.directory is None or not (self.directory + "/").startswith(DATA + "/"):
            return []
        try:
            os.chdir(self.directory)
        except OSError:
            os.chdir(DATA)
            return ["the working directory: " + uncopied.shortened(self.directory)]
        return []
