/* version.h - which hutch this is. The Makefile reads it, too. */
#ifndef HUTCH_CLI_VERSION_H
#define HUTCH_CLI_VERSION_H

#define HUTCH_VERSION "0.1.0"

#endif
