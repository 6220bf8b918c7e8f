/* signature.h - addresses of files that need no other credentials: signed with the access token of their sandbox. */
#ifndef HUTCH_E2B_SIGNATURE_H
#define HUTCH_E2B_SIGNATURE_H

#include <stdbool.h>
#include <stddef.h>

struct e2b_sandbox;
struct exchange;

/* "v1_" and the SHA-256 of PATH:OPERATION:USER:TOKEN[:EXPIRATION] in base64 without padding, NUL-terminated, for the
 * caller to free; NULL on ENOMEM. @expiration: as the address has it, or NULL. */
char *hutch_e2b_signature_make(const char *path, const char *operation, const char *user, const char *token,
                               const char *expiration);

/* Whether the query of @x has a signature that is good for what it asks, and not expired. */
bool hutch_e2b_signature_is_good(const struct exchange *x, const struct e2b_sandbox *sandbox);

#endif
