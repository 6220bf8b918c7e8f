/* mcp.h - hutch mcp: a server of the Model Context Protocol on standard input and output. */
#ifndef HUTCH_CLI_MCP_H
#define HUTCH_CLI_MCP_H

#include "sandbox/err.h"

/* argv[0] is "mcp". Returns the exit status, -1 with *err. */
int hutch_cmd_mcp(int argc, char **argv, struct hutch_err *err);

#endif
