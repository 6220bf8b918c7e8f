/* names.h - ids of sandboxes. They are the ids of hutch's sessions in other letters: as a part of a host's name they
 * may lose their case. */
#ifndef HUTCH_E2B_NAMES_H
#define HUTCH_E2B_NAMES_H

#include "runtime/text/ids.h"

#include <stdbool.h>

/* Five bits a letter. */
#define E2B_ID_LEN ((ID_LEN * 6 + 4) / 5)

void hutch_e2b_name_write(const char id[ID_LEN + 1], char ret[E2B_ID_LEN + 1]);

/* False, and an id that is nobody's, when @name is no id of a sandbox. It ends at a NUL. */
bool hutch_e2b_name_read(const char *name, char ret[ID_LEN + 1]);

/* The id of a sandbox and the port in a Host header such as "49999-NAME.box.example". False: there is none. */
bool hutch_e2b_name_of_host(const char *host, char ret_name[E2B_ID_LEN + 1], unsigned *ret_port);

#endif
