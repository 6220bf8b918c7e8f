/* immortal.c - objects of a zygote whose references no worker counts.
 *
 * A Python object has its count of references within it, so a worker that only looks at the zygote's objects writes to
 * their pages, and has copies of them: half of the memory of a prepared shell. From 3.12 on an object may be immortal
 * (PEP 683): its count says so, and is neither raised nor lowered. The zygote's objects die with the process anyhow.
 *
 * How 3.12 and 3.13 write it is taken from None, which is immortal there: the lower half of the count is all ones.
 * Elsewhere, in builds without the lock of the interpreter too, nothing is done. */
#include "rootfs/helper/pyapi.h"

#include <stdbool.h>
#include <string.h>

#define CHUNK 1024 /* objects whose referents are asked for at once */

/* Called by Python. */
__attribute__((visibility("default"))) int hutch_immortal_make(PyObject *objects, PyObject *get_referents);

static uint32_t read_count(const void *object)
{
    uint32_t count;

    memcpy(&count, object, sizeof(count));
    return count;
}

static bool are_counts_known(void)
{
    const uint16_t one = 1;

    return sizeof(void *) == 8 && *(const unsigned char *)&one == 1 && read_count(_Py_NoneStruct) == UINT32_MAX;
}

/* False when it was already. */
static bool mark(PyObject *object)
{
    const uint32_t immortal = UINT32_MAX;

    if ((int32_t)read_count(object) < 0)
        return false;
    memcpy(object, &immortal, sizeof(immortal));
    return true;
}

/* Marks what @found has, and adds what was not marked yet to @later. */
static int mark_found(PyObject *found, PyObject *later)
{
    for (intptr_t i = 0; i < PyList_Size(found); i++) {
        PyObject *object = PyList_GetItem(found, i);

        if (mark(object) && PyList_Append(later, object) < 0)
            return -1;
    }
    return 0;
}

static int mark_referents(PyObject *objects, PyObject *get_referents, PyObject *later)
{
    for (intptr_t i = 0; i < PyList_Size(objects); i += CHUNK) {
        PyObject *slice = PyList_GetSlice(objects, i, i + CHUNK);
        PyObject *words = slice ? PyList_AsTuple(slice) : NULL;
        PyObject *found = words ? PyObject_CallObject(get_referents, words) : NULL;
        int rc = found ? mark_found(found, later) : -1;

        Py_DecRef(found);
        Py_DecRef(words);
        Py_DecRef(slice);
        if (rc < 0)
            return -1;
    }
    return 0;
}

/* @objects: a list of all that the collector knows; what only they refer to, as numbers and texts, is found from them.
 * 1 when done, 0 where it cannot be, -1 with a Python error: some are marked then, which harms nothing. */
int hutch_immortal_make(PyObject *objects, PyObject *get_referents)
{
    PyObject *now = objects;
    int rc = 0;

    if (!are_counts_known())
        return 0;
    for (intptr_t i = 0; i < PyList_Size(objects); i++)
        mark(PyList_GetItem(objects, i));
    while (rc == 0 && PyList_Size(now) > 0) {
        PyObject *later = PyList_New(0);

        rc = later ? mark_referents(now, get_referents, later) : -1;
        if (now != objects)
            Py_DecRef(now);
        now = later;
    }
    if (now != objects)
        Py_DecRef(now);
    return rc < 0 ? -1 : 1;
}
