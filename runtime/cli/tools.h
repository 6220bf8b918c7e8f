/* tools.h - hutch tools: the definitions of tools for a model. */
#ifndef HUTCH_CLI_TOOLS_H
#define HUTCH_CLI_TOOLS_H

struct hutch_err;

int hutch_cmd_tools(int argc, char **argv, struct hutch_err *err);

#endif
