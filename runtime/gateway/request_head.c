#include "runtime/gateway/request_head.h"

#include <microhttpd.h>
#include <string.h>

/* The strings that MHD hands out lie in the head as it was received, where a NUL byte ends each of them: in place of a
 * blank, of a colon, and of each byte of a line's end. Where nothing was dropped, the next one begins behind it. */
struct walk {
    const char *at; /* where the next line begins */
    bool is_whole;
};

/* @text is all that is left of a line. */
static const char *next_line(const char *text)
{
    return text + strlen(text) + strlen("\r\n");
}

static const char *skip(const char *text, const char *blanks)
{
    return text + strspn(text, blanks);
}

/* MHD_KeyValueIterator. */
static enum MHD_Result walk_header(void *cls, enum MHD_ValueKind kind, const char *key, const char *value)
{
    struct walk *walk = cls;

    (void)kind;
    walk->is_whole = key == walk->at && value == skip(key + strlen(key) + 1, " \t");
    walk->at = next_line(value);
    return walk->is_whole ? MHD_YES : MHD_NO;
}

bool hutch_request_head_is_whole(struct MHD_Connection *mhd, const char *method, const char *target, const char *path,
                                 const char *version)
{
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_REQUEST_HEADER_SIZE);
    struct walk walk = { .at = next_line(version), .is_whole = true };

    if (MHD_get_version()[0] != '0') /* it refuses them itself */
        return true;
    if (!info || !target || path != skip(method + strlen(method) + 1, " ") || version != path + strlen(target) + 1)
        return false;
    MHD_get_connection_values(mhd, MHD_HEADER_KIND, walk_header, &walk);
    return walk.is_whole && walk.at + strlen("\r\n") == method + info->header_size;
}
