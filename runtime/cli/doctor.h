/* doctor.h - the command `hutch doctor`. */
#ifndef HUTCH_CLI_DOCTOR_H
#define HUTCH_CLI_DOCTOR_H

#include "sandbox/err.h"

/* argv[0] is "doctor". Exit status 0 when the policies default and strict would both run, 1 when only default, 2 when
 * neither, -1 with *err when hutch itself failed. */
int hutch_cmd_doctor(int argc, char **argv, struct hutch_err *err);

#endif
