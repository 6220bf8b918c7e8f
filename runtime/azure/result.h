/* result.h - what a cell came to, as Azure's dynamic sessions tell it: stdout, stderr, one value, a time. */
#ifndef HUTCH_AZURE_RESULT_H
#define HUTCH_AZURE_RESULT_H

#include "runtime/hutch.h"
#include "runtime/text/buffer.h"

/* The versions of the API differ in how they tell a value. */
enum azure_shape {
    AZURE_PROPERTIES, /* 2024-02-02-preview: numbers and texts as they are, all else as its text, in "result" */
    AZURE_STRING,     /* 2024-10-02-preview, 2024-09-01: everything as a text, in "executionResult" */
    AZURE_NATIVE      /* 2025-02-02-preview and later: as JSON, where it can be that, in "executionResult" */
};

/* "stdout":…,"stderr":…,"result":…,"executionTimeInMilliseconds":… */
void hutch_azure_add_result(struct text_buffer *t, const struct hutch_cell_result *result, enum azure_shape shape);

/* The same of a program that could not be run. */
void hutch_azure_add_trouble(struct text_buffer *t, const char *message, enum azure_shape shape);

/* {"$id":"1","properties":{…}}, as the oldest version has it. @message: it could not be run; else NULL. */
void hutch_azure_add_properties(struct text_buffer *t, const struct hutch_cell_result *result, const char *message);

#endif
