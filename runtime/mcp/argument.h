/* argument.h - the arguments of a tool as rows: from them comes the schema that a client is told, and by them its words
 * are read. */
#ifndef HUTCH_MCP_ARGUMENT_H
#define HUTCH_MCP_ARGUMENT_H

#include "runtime/text/json_view.h"
#include "sandbox/err.h"

#include <stdbool.h>
#include <stddef.h>

struct text_buffer;

#define MCP_MAX_ARGUMENTS 6
#define MCP_NO_ARGUMENT (MCP_MAX_ARGUMENTS - 1) /* the place of one that no tool has: it is never set */

enum mcp_type { MCP_STRING, MCP_NUMBER, MCP_INTEGER };

struct mcp_argument {
    const char *name;
    enum mcp_type type;
    bool is_required;
    double min, max;           /* of a number */
    const char *const *values; /* that a string may have, ends with NULL; NULL: any */
    const char *description;   /* for the model */
};

struct mcp_value {
    bool is_set;
    char *text;    /* owned; of a string: UTF-8 without NUL, NUL-terminated */
    size_t len;
    double number;
};

/* In the order of the rows. All zeros: none. */
struct mcp_arguments {
    struct mcp_value values[MCP_MAX_ARGUMENTS];
};

/* {"type":"object","properties":{…},"required":[…],"additionalProperties":false} */
void hutch_mcp_write_schema(struct text_buffer *t, const struct mcp_argument *rows, size_t n);

/* @object: an object, or none. hutch_mcp_arguments_done() in any case. Errors, each one sentence that a model can act
 * on: a name that no row has, one that is there twice, a required one that is missing, a wrong type or value. */
int hutch_mcp_arguments_read(struct json_view object, const struct mcp_argument *rows, size_t n,
                             struct mcp_arguments *ret, struct hutch_err *err);
void hutch_mcp_arguments_done(struct mcp_arguments *arguments);

#endif
