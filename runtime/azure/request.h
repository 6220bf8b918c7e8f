/* request.h - the bodies of Azure's dynamic sessions: an execution, as JSON, and a file, as multipart. */
#ifndef HUTCH_AZURE_REQUEST_H
#define HUTCH_AZURE_REQUEST_H

#include "sandbox/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct azure_request {
    char *code;       /* owned; NULL: it is a command */
    char *command;    /* owned; for the shell */
    bool is_async;
    uint64_t timeout_ms; /* 0: not said */
};

/* Flat, or below "properties". hutch_azure_request_done() in any case. */
int hutch_azure_request_parse(const char *text, size_t len, struct azure_request *ret, struct hutch_err *err);
void hutch_azure_request_done(struct azure_request *r);

struct azure_upload {
    char *name;       /* owned; relative to /mnt/data */
    const char *data; /* within the body */
    size_t len;
};

/* The first part that has the name of a file. The boundary is taken from the body, as one client says a wrong
 * Content-Type. @directory: below which it goes; NULL: none. @ret->name is the caller's to free, on failure too. */
int hutch_azure_upload_parse(const char *body, size_t len, const char *directory, struct azure_upload *ret,
                             struct hutch_err *err);

/* @path without "/mnt/data" at its begin, and without slashes there. */
const char *hutch_azure_relative(const char *path);

#endif
