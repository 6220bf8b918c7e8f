/* run_result.h - the result of a run as its client gets it. */
#ifndef HUTCH_GATEWAY_RUN_RESULT_H
#define HUTCH_GATEWAY_RUN_RESULT_H

struct hutch_result;

#define RUN_RESULT_MAX_FETCHED (16u << 20) /* bytes of all files */

/* hutch_result_to_json(), and where files were asked for, "fetched": each with path, size and its bytes as base64, or
 * with the error for which there are none. The caller's to free; NULL on ENOMEM. */
char *hutch_run_result_json(const struct hutch_result *result);

#endif
