/* guest.h - small programs of ours that run inside the sandbox, carried in the binary. */
#ifndef HUTCH_GUEST_H
#define HUTCH_GUEST_H

#include "sandbox/inside.h"

#include <stddef.h>

#define GUEST_PYTHON_DIR INSIDE_OWN_DIR "/site"

struct guest_file {
    const char *target; /* absolute path inside */
    const char *data;   /* static; not NUL-terminated */
    size_t len;
};

/* The Python hook: the files that belong below GUEST_PYTHON_DIR. Ends with a NULL target. */
const struct guest_file *hutch_guest_python(void);

#define GUEST_ZYGOTE_DIR  INSIDE_OWN_DIR "/zygote"
#define GUEST_ZYGOTE_MAIN GUEST_ZYGOTE_DIR "/main.py"
/* What the first zygote imports: names, one a line, and after a line "---" its warm-up code. */
#define GUEST_ZYGOTE_PRELOAD GUEST_ZYGOTE_DIR "/preload"

/* The Python zygote: the files that belong below GUEST_ZYGOTE_DIR, without the preload list. Ends with a NULL
 * target. */
const struct guest_file *hutch_guest_zygote(void);

#endif
