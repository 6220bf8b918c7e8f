#include "sandbox/dents.h"

#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

struct dirent64_raw { /* getdents64(2) */
    uint64_t d_ino;
    int64_t d_off;
    uint16_t d_reclen;
    uint8_t d_type;
    char d_name[];
};

void hutch_dents_begin(struct dents *dents, int fd)
{
    dents->fd = fd;
    dents->n = dents->at = 0;
    if (fd >= 0 && lseek(fd, 0, SEEK_SET) < 0)
        dents->fd = -1;
}

const char *hutch_dents_next(struct dents *dents)
{
    for (;;) {
        const struct dirent64_raw *entry;

        if (dents->at >= dents->n) {
            dents->at = 0;
            dents->n = dents->fd < 0 ? -1 : syscall(SYS_getdents64, dents->fd, dents->buf, sizeof(dents->buf));
            if (dents->n <= 0)
                return NULL;
        }
        entry = (const struct dirent64_raw *)(dents->buf + dents->at);
        dents->at += entry->d_reclen;
        if (entry->d_name[0] != '.')
            return entry->d_name;
    }
}
