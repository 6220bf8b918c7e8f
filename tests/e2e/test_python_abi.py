"""The structs and functions of the Python package against hutch.h: what a C compiler makes of the header is what ctypes has."""
import ctypes
import os
import re
import subprocess

import pytest

import package
import support
from hutch import _abi, _library, errors

PREFIX = os.path.dirname(os.path.dirname(support.HUTCH))
HEADERS = [os.path.join(PREFIX, "include", "hutch.h"), os.path.join(support.TREE, "runtime", "hutch.h")]
HEADER = next((path for path in HEADERS if os.path.exists(path)), None)
pytestmark = pytest.mark.skipif(HEADER is None, reason="there is no hutch.h beside %s" % support.HUTCH)

PROGRAM = """#include <stddef.h>
#include <stdio.h>
#include "%s"
#define PLACE(type, field) printf("%%s %%s %%zu %%zu\\n", #type, #field, offsetof(struct type, field), sizeof(((struct type *)0)->field))
int main(void)
{
%s
    return 0;
}
"""


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    """{struct: ({field: (offset, size)}, size)} as a C compiler lays it out, and the numbers of enums."""
    folder = tmp_path_factory.mktemp("abi")
    lines = ["    PLACE(%s, %s);" % (name, field) for name, struct in _abi.STRUCTS.items() for field, _ in struct._fields_]
    lines += ['    printf("%s - 0 %%zu\\n", sizeof(struct %s));' % (name, name) for name in _abi.STRUCTS]
    (folder / "abi.c").write_text(PROGRAM % (HEADER, "\n".join(lines)))
    done = subprocess.run(["cc", "-std=c11", str(folder / "abi.c"), "-o", str(folder / "abi")], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = {}
    for line in subprocess.run([str(folder / "abi")], capture_output=True, text=True, check=True).stdout.splitlines():
        name, field, offset, size = line.split()
        found.setdefault(name, {})[field] = (int(offset), int(size))
    return found


KINDS = {"int": "c_int", "unsigned": "c_uint", "uint64_t": "c_uint64", "int64_t": "c_int64", "size_t": "c_size_t", "double": "c_double",
         "const char *": "c_char_p", "const char *const *": "TEXTS"}


def declared_fields(name):
    """{field: what ctypes has for it} of a struct in the header, in their order; a pointer to something is any pointer."""
    with open(HEADER, encoding="utf-8") as file:
        text = re.sub(r"/\*.*?\*/", "", file.read(), flags=re.DOTALL)
    body = re.search(r"^struct %s \{(.*?)^\};" % name, text, re.MULTILINE | re.DOTALL).group(1)
    fields = {}
    for declaration in body.split(";"):
        pointer = re.search(r"\(\*(\w+)\)\s*\(", declaration)
        if pointer:
            fields[pointer.group(1)] = "c_void_p"
        elif declaration.strip():
            kind = re.match(r"\s*((?:const |unsigned |struct |enum )*\w*[ ]*(?:\*const \*|\*)?)", declaration).group(1).strip()
            for part in declaration.split(","):
                field = re.search(r"(\w+)\s*(?:\[\d+\])?$", part.strip()).group(1)
                kind = re.sub(r"\s*\b%s$" % field, "", kind).strip()
                fields[field] = KINDS.get(kind, "c_int" if kind.startswith("enum") else "c_void_p")
    return fields


@pytest.mark.parametrize("name", sorted(_abi.STRUCTS))
def test_struct(compiled, name):
    struct = _abi.STRUCTS[name]
    for field, _ in struct._fields_:
        place = getattr(struct, field)
        assert (place.offset, place.size) == compiled[name][field], "struct %s, %s" % (name, field)
    known, declared = [field for field, _ in struct._fields_], declared_fields(name)
    lacks = ", ".join('("%s", %s)' % (field, kind) for field, kind in declared.items() if field not in known)
    assert known == list(declared), "class %s of clients/python/hutch/_abi.py needs at its end: %s" % (struct.__name__, lacks)
    assert ctypes.sizeof(struct) == compiled[name]["-"][1], name


def test_kinds_of_outputs():
    with open(HEADER, encoding="utf-8") as file:
        body = re.search(r"enum hutch_output_kind \{(.*?)\}", file.read(), re.DOTALL).group(1)
    names = re.findall(r"HUTCH_(\w+)", body)
    assert len(names) == len(_abi.OUTPUT_KINDS)
    assert [name.lower().replace("error_output", "error") for name in names] == list(_abi.OUTPUT_KINDS)


def test_functions_are_declared_as_they_are():
    with open(HEADER, encoding="utf-8") as file:
        text = re.sub(r"/\*.*?\*/", "", file.read(), flags=re.DOTALL)
    for name, (_, arguments) in _abi.FUNCTIONS.items():
        found = re.search(r"\b%s\(([^;{]*)\);" % name, re.sub(r"\s+", " ", text))
        assert found or name.endswith("_init"), name
        if found:
            assert found.group(1).count(",") + 1 == len(arguments), name


def test_library_that_lays_structs_out_otherwise_is_refused(tmp_path):
    source = tmp_path / "other.c"
    source.write_text("".join("void %s(void *p);\nvoid %s(void *p) { *(unsigned long *)p = 8; }\n" % (name, name)
                              for name in _abi.FUNCTIONS))
    subprocess.run(["cc", "-shared", "-fPIC", str(source), "-o", str(tmp_path / "libhutch.so.1")], check=True)
    with pytest.raises(errors.LibraryError, match="hutch_engine_options_init.* says 8 bytes"):
        _library.load(str(tmp_path / "libhutch.so.1"))


def test_library_that_lacks_functions_is_refused(tmp_path):
    (tmp_path / "old.c").write_text("void hutch_engine_open(void) {}\n")
    subprocess.run(["cc", "-shared", "-fPIC", str(tmp_path / "old.c"), "-o", str(tmp_path / "libhutch.so.1")], check=True)
    with pytest.raises(errors.LibraryError, match="older than this package: it lacks .*hutch_engine_dispatch"):
        _library.load(str(tmp_path / "libhutch.so.1"))


def test_missing_library_is_named(tmp_path):
    with pytest.raises(errors.LibraryError, match="/nowhere/libhutch.so.1.*HUTCH_LIBRARY"):
        _library.load("/nowhere/libhutch.so.1")


def test_the_library_is_the_one_of_the_tests():
    options = package.options()
    assert _library.load(options["library"]).path == options["library"]
