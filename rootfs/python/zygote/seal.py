# A worker's first objects are in pages of its own. Python's allocator gives out the free blocks of pools in use before
# it begins a new pool; in a worker those pools are the zygote's, and every page of them that is written to is copied.
# So the zygote fills such blocks itself, before its memory is frozen, with objects that stay.
#
# sys._debugmallocstats() says how many there are, in lines "class size pools used free". Where Python has another
# allocator no line is one, and nothing is filled.
import os
import sys

EMPTY = sys.getsizeof(b"")  # bytes of one take so many more than they hold
held = []


def read_statistics():
    """What Python prints of its allocator, to standard error and nowhere else. A pipe has room for all of it, and what
    it had none for would be left out."""
    (source, sink), own = os.pipe(), os.dup(2)
    try:
        os.set_blocking(sink, False)
        os.dup2(sink, 2)
        sys._debugmallocstats()
        os.dup2(own, 2)
        return os.read(source, 1 << 16).decode("ascii", "replace")
    finally:
        os.dup2(own, 2)
        for fd in (source, sink, own):
            os.close(fd)


def free_blocks():
    """Pairs of a block's size in bytes, and how many are free."""
    lines = [line.split() for line in read_statistics().splitlines()]
    return [(int(words[1]), int(words[4])) for words in lines if len(words) == 5 and all(map(str.isdigit, words))]


def fill():
    """With objects of just those sizes: the two smallest are those of object() and of a float."""
    for size, n in free_blocks():
        if size > EMPTY:
            held.append([bytes(size - EMPTY) for _ in range(n)])
        else:
            held.append([object() if size <= 16 else i + 0.5 for i in range(n)])
