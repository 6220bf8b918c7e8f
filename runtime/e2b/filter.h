/* filter.h - which sandboxes a list asks for, by the values of its query. */
#ifndef HUTCH_E2B_FILTER_H
#define HUTCH_E2B_FILTER_H

#include <stdbool.h>

/* Whether @metadata, an object of JSON whose values are texts, has all pairs of @wanted: "KEY=VALUE&KEY=VALUE", each
 * encoded twice. NULL asks for nothing. */
bool hutch_e2b_filter_metadata(const char *metadata, const char *wanted);

/* Whether @wanted, "running,paused", has @state; NULL has all. */
bool hutch_e2b_filter_state(const char *wanted, const char *state);

#endif
