/* fuzz.h - what the targets share. A target is a program of libFuzzer: it is called with bytes, and whatever they are,
 * it may not crash, leak, read beyond their end, or say one thing and mean another. */
#ifndef HUTCH_TEST_FUZZ_H
#define HUTCH_TEST_FUZZ_H

#include "sandbox/err.h"
#include "sandbox/fd.h"

#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Not assert(3): it holds in every build. */
#define fuzz_check(claim)                                                       \
    do {                                                                        \
        if (!(claim)) {                                                         \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #claim); \
            abort();                                                            \
        }                                                                       \
    } while (0)

/* A failure is told in one sentence, and success in none. */
static inline void fuzz_check_err(int rc, const struct hutch_err *err)
{
    if (rc < 0) {
        fuzz_check(memchr(err->msg, '\0', sizeof(err->msg)));
        fuzz_check(err->msg[0] != '\0');
        fuzz_check(!strchr(err->msg, '\n'));
    }
}

/* The bytes as a C string, for the caller to free. */
static inline char *fuzz_string(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1);

    fuzz_check(text);
    memcpy(text, data, size);
    text[size] = '\0';
    return text;
}

/* The bytes as a file that is read from its start; its path is /proc/self/fd/N. */
static inline int fuzz_file(const uint8_t *data, size_t size, char path[32])
{
    int fd = memfd_create("fuzz", MFD_CLOEXEC);

    fuzz_check(fd >= 0 && hutch_fd_write_all(fd, data, size) == 0 && lseek(fd, 0, SEEK_SET) == 0);
    if (path)
        snprintf(path, 32, "/proc/self/fd/%d", fd);
    return fd;
}

/* The next byte of the input, 0 behind its end: what a target decides by. */
static inline unsigned fuzz_byte(const uint8_t **data, size_t *size)
{
    if (*size == 0)
        return 0;
    --*size;
    return *(*data)++;
}

/* A piece whose length the next byte says; it stands in a block of its own, so that no read goes beyond it unseen. The
 * caller frees. */
static inline char *fuzz_piece(const uint8_t **data, size_t *size, size_t *ret_len)
{
    size_t len = fuzz_byte(data, size);
    char *piece;

    if (len >= 250) /* and a long one now and then */
        len = (len - 249) * 700;
    len = len < *size ? len : *size;
    piece = malloc(len ? len : 1);
    fuzz_check(piece);
    memcpy(piece, *data, len);
    *data += len;
    *size -= len;
    *ret_len = len;
    return piece;
}

#endif
