"""Finds libhutch, loads it once, and checks that it is what _abi.py describes."""
from __future__ import annotations

import ctypes
import os
import sysconfig
import threading
from typing import Any, Dict, List, Optional

from . import _abi
from .errors import LibraryError

SONAME = "libhutch.so.1"
HERE = os.path.dirname(os.path.realpath(__file__))


def tree() -> Optional[str]:
    """The top of hutch's sources, when this package is used from there."""
    top = os.path.dirname(os.path.dirname(os.path.dirname(HERE)))
    return top if os.path.isfile(os.path.join(top, "runtime", "hutch.h")) else None


def prefix() -> Optional[str]:
    """PREFIX, when this package is PREFIX/share/hutch-data/python/hutch."""
    words = HERE.rsplit(os.sep, 4)
    return words[0] if words[1:] == ["share", "hutch-data", "python", "hutch"] else None


def candidates() -> List[str]:
    """Where the library may be, the likeliest first. A name without a slash is for the dynamic linker."""
    given = os.environ.get("HUTCH_LIBRARY")
    if given:
        return [given]
    found = []
    for top in (prefix(),):
        if top:
            below = (sysconfig.get_config_var("MULTIARCH") or "", "")
            found += [os.path.join(top, "lib", folder, SONAME) for folder in below]
    source = tree()
    if source:
        found.append(os.path.join(source, "build", SONAME))
    return [path for path in dict.fromkeys(found) if os.path.exists(path)] + [SONAME]


def surroundings() -> Dict[str, str]:
    """Launcher and policies of a build directory: an installed library finds its own."""
    source = tree()
    if prefix() or not source or os.environ.get("HUTCH_LIBRARY"):
        return {}
    found = {"launcher": os.path.join(source, "build", "hutch-launcher"),
             "policy_dir": os.path.join(source, "policies")}
    names = {"launcher": "HUTCH_LAUNCHER", "policy_dir": "HUTCH_POLICY_DIR"}
    return {key: path for key, path in found.items() if os.path.exists(path) and not os.environ.get(names[key])}


class Library:
    """The functions of libhutch as attributes, without the prefix `hutch_`."""

    def __init__(self, path: str) -> None:
        self.path = path
        try:
            self._dll = ctypes.CDLL(path)
            process = ctypes.CDLL(None)
        except OSError as error:
            raise LibraryError("load libhutch: %s (HUTCH_LIBRARY can name its file; `make install` and `ldconfig` put "
                               "it where it is found)" % error) from None
        self._free = process.free
        self._free.restype, self._free.argtypes = None, (ctypes.c_void_p,)
        missing = [name for name in _abi.FUNCTIONS if not hasattr(self._dll, name)]
        if missing:
            raise LibraryError("'%s' is older than this package: it lacks %s" % (path, ", ".join(missing)))
        for name, (result, arguments) in _abi.FUNCTIONS.items():
            function = getattr(self._dll, name)
            function.restype, function.argtypes = result, arguments
            setattr(self, name[len("hutch_"):], function)
        self._check_sizes()

    def __getattr__(self, name: str) -> Any:  # for type checkers: the functions are set in __init__
        raise AttributeError(name)

    def _check_sizes(self) -> None:
        for name, (struct, last) in _abi.FIRST_VERSION.items():
            raw = struct()
            getattr(self, name[len("hutch_"):])(ctypes.byref(raw))
            field = getattr(struct, last)
            if raw.size != field.offset + field.size:
                raise LibraryError("'%s' is no library for this package: %s() says %d bytes up to '%s', here these are "
                                   "%d" % (self.path, name, raw.size, last, field.offset + field.size))

    def take_text(self, address: Optional[int]) -> Optional[bytes]:
        """The text that the library has given to us, which is freed."""
        if not address:
            return None
        try:
            return ctypes.string_at(address)
        finally:
            self._free(address)


_loaded: Dict[str, Library] = {}
_lock = threading.Lock()


def load(path: Optional[str] = None) -> Library:
    """The library, loaded at the first call. @path: its file, in place of the one that is found."""
    with _lock:
        where = path or candidates()[0]
        if where not in _loaded:
            _loaded[where] = Library(where)
        return _loaded[where]
