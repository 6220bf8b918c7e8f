/* pyapi.h - the part of Python's C API that these files use, declared by hand: nothing of Python is needed to compile
 * them, and they work with every version since 3.8. Weak, so that a process without Python can load them. */
#ifndef HUTCH_PYAPI_H
#define HUTCH_PYAPI_H

#include <stdint.h>
#include <stdio.h>

#define WEAK   __attribute__((weak))

typedef struct object PyObject;
typedef struct interpreter_state PyInterpreterState;
typedef struct thread_state PyThreadState;
typedef struct { int cf_flags, cf_feature_version; } PyCompilerFlags;
typedef struct { const char *name; PyObject *(*call)(PyObject *, PyObject *); int flags; const char *doc; } PyMethodDef;

enum { Py_file_input = 257, Py_PRINT_RAW = 1, PyCF_IGNORE_COOKIE = 0x10, METH_VARARGS = 1, METH_KEYWORDS = 2 };

/* An opaque object's own layout is never used, only its address. */
extern WEAK char _Py_NoneStruct[], _Py_TrueStruct[], PyLong_Type[], PyUnicode_Type[], PyDict_Type[], PyModule_Type[];
extern WEAK PyObject *PyExc_BaseException, *PyExc_SystemExit, *PyExc_KeyboardInterrupt, *PyExc_ImportError;
#define Py_None ((PyObject *)_Py_NoneStruct)
#define Py_True ((PyObject *)_Py_TrueStruct)

extern WEAK PyInterpreterState *PyInterpreterState_Main(void);
extern WEAK PyThreadState *PyThreadState_New(PyInterpreterState *interpreter);
extern WEAK PyThreadState *PyThreadState_Get(void);
extern WEAK PyThreadState *PyThreadState_Swap(PyThreadState *state);
extern WEAK void PyThreadState_Clear(PyThreadState *state);
extern WEAK void PyThreadState_Delete(PyThreadState *state);

extern WEAK void Py_IncRef(PyObject *object);
extern WEAK void Py_DecRef(PyObject *object); /* NULL is fine */
extern WEAK int PyArg_ParseTuple(PyObject *tuple, const char *format, ...);
extern WEAK PyObject *PyObject_CallFunction(PyObject *function, const char *format, ...);
extern WEAK PyObject *PyObject_CallObject(PyObject *function, PyObject *words);
extern WEAK PyObject *PyObject_CallMethod(PyObject *object, const char *name, const char *format, ...);
extern WEAK PyObject *PyObject_GetAttrString(PyObject *object, const char *name);
extern WEAK int PyObject_SetAttrString(PyObject *object, const char *name, PyObject *value);
extern WEAK int PyObject_IsTrue(PyObject *object);
extern WEAK int PyObject_IsInstance(PyObject *object, PyObject *type);
extern WEAK int PyObject_Print(PyObject *object, FILE *file, int flags);
extern WEAK int PyFile_WriteObject(PyObject *object, PyObject *file, int flags);
extern WEAK int PyCallable_Check(PyObject *object);
extern WEAK long PyLong_AsLong(PyObject *number);
extern WEAK void *PyLong_AsVoidPtr(PyObject *number);
extern WEAK PyObject *PyBytes_FromStringAndSize(const char *data, intptr_t len);
extern WEAK char *PyBytes_AsString(PyObject *bytes);
extern WEAK intptr_t PyBytes_Size(PyObject *bytes);
extern WEAK PyObject *PyUnicode_FromString(const char *text);
extern WEAK const char *PyUnicode_AsUTF8(PyObject *text);
extern WEAK PyObject *PySet_New(PyObject *items);
extern WEAK intptr_t PySet_Size(PyObject *set);
extern WEAK PyObject *PyWeakref_NewRef(PyObject *object, PyObject *callback);
extern WEAK PyObject *PyCFunction_NewEx(PyMethodDef *method, PyObject *self, PyObject *module);

extern WEAK PyObject *PyUnicode_DecodeUTF8(const char *data, intptr_t len, const char *errors);
extern WEAK PyObject *PyUnicode_DecodeFSDefaultAndSize(const char *data, intptr_t len);
extern WEAK PyObject *PyModule_New(const char *name);

extern WEAK int PySequence_Contains(PyObject *sequence, PyObject *item);
extern WEAK PyObject *PyList_New(intptr_t len);
extern WEAK intptr_t PyList_Size(PyObject *list);
extern WEAK PyObject *PyList_GetItem(PyObject *list, intptr_t i); /* borrowed */
extern WEAK PyObject *PyList_GetSlice(PyObject *list, intptr_t from, intptr_t to);
extern WEAK PyObject *PyList_AsTuple(PyObject *list);
extern WEAK int PyList_Append(PyObject *list, PyObject *item);
extern WEAK int PyList_Insert(PyObject *list, intptr_t at, PyObject *item);
extern WEAK int PyList_SetSlice(PyObject *list, intptr_t from, intptr_t to, PyObject *items);
extern WEAK PyObject *PyDict_GetItem(PyObject *dict, PyObject *key);             /* borrowed; no error */
extern WEAK PyObject *PyDict_GetItemString(PyObject *dict, const char *key);     /* likewise */
extern WEAK int PyDict_SetItem(PyObject *dict, PyObject *key, PyObject *value);
extern WEAK int PyDict_SetItemString(PyObject *dict, const char *key, PyObject *value);
extern WEAK int PyDict_DelItem(PyObject *dict, PyObject *key);
extern WEAK int PyDict_DelItemString(PyObject *dict, const char *key);
extern WEAK int PyDict_Next(PyObject *dict, intptr_t *pos, PyObject **key, PyObject **value); /* borrowed */

extern WEAK PyObject *PyErr_Occurred(void);
extern WEAK int PyErr_ExceptionMatches(PyObject *type);
extern WEAK void PyErr_Clear(void);
extern WEAK void PyErr_Print(void);
extern WEAK void PyErr_WriteUnraisable(PyObject *where);
extern WEAK void PyErr_FormatUnraisable(const char *format, ...); /* from 3.13 on */
extern WEAK void PyErr_SetString(PyObject *type, const char *text);
extern WEAK void PyErr_Fetch(PyObject **type, PyObject **value, PyObject **traceback);
extern WEAK void PyErr_Restore(PyObject *type, PyObject *value, PyObject *traceback);

extern WEAK PyObject *PySys_GetObject(const char *name); /* borrowed */
extern WEAK int PySys_SetObject(const char *name, PyObject *value);
extern WEAK void PySys_WriteStderr(const char *format, ...);
extern WEAK PyObject *PyEval_GetBuiltins(void);       /* borrowed */
extern WEAK PyObject *PyImport_GetModuleDict(void);   /* borrowed */
extern WEAK PyObject *PyImport_ImportModule(const char *name);
extern WEAK PyObject *PyEval_EvalCode(PyObject *code, PyObject *globals, PyObject *locals);
extern WEAK PyObject *Py_CompileStringExFlags(const char *text, const char *name, int start, PyCompilerFlags *flags,
                                              int optimize);
extern WEAK PyObject *PyModule_GetDict(PyObject *module); /* borrowed */
extern WEAK intptr_t PyGC_Collect(void);
extern WEAK PyObject *PyRun_FileExFlags(FILE *file, const char *name, int start, PyObject *globals, PyObject *locals,
                                        int closes, PyCompilerFlags *flags);
extern WEAK PyObject *PyRun_StringFlags(const char *text, int start, PyObject *globals, PyObject *locals,
                                        PyCompilerFlags *flags);

#endif
