# What a zygote has when it is about to be forked stays as it is: the collector never looks at it again, and where
# Python knows immortal objects nobody counts their references (rootfs/helper/immortal.c). A worker that only reads
# does not write to those pages then, so it has no copies of them.
import gc

make = None  # of the helper; set once


def set_helper(helper, ctypes):
    global make
    make = helper.hutch_immortal_make
    make.argtypes = [ctypes.py_object, ctypes.py_object]


def freeze():
    """Of garbage nothing should be left: it would stay, too."""
    make(gc.get_objects(), gc.get_referents)
    gc.freeze()
