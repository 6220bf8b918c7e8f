/* store_share.h - lets other users of the host have an image, who name the store in HUTCH_IMAGES: stores.h. */
#ifndef HUTCH_STORE_SHARE_H
#define HUTCH_STORE_SHARE_H

#include "rootfs/store.h"
#include "sandbox/err.h"

/* Others may read the tree of @name, its record and this name from now on; of an extended image also its layers, and
 * its base where that is in the store. A tree holds nothing that is secret within an image, whatever it was unpacked
 * from: docs/images.md, "Owners and permissions". *ret_closed is a directory on the way to the store that others
 * cannot enter, which is left as it is; NULL: there is none. The caller frees it. Errors: ENOENT; those of
 * fchmod(2). */
int hutch_store_share(const struct store *store, const char *name, char **ret_closed, struct hutch_err *err);

#endif
