#include "rootfs/helper/rseq.h"

#include <stddef.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Of glibc since 2.35, <sys/rseq.h>: where the area is from the thread pointer, and how much of it is in use, 0 when
 * the kernel has refused it. Weak: musl and older glibc have no such area. */
extern const ptrdiff_t __rseq_offset __attribute__((weak));
extern const unsigned int __rseq_size __attribute__((weak));

/* What stands before the abort handlers of libc, which gives it at every registration. */
#if defined(__x86_64__)
#define SIGNATURE 0x53053053u
#elif defined(__aarch64__)
#define SIGNATURE 0xd428bc00u
#endif

/* The beginning of linux/rseq.h's struct rseq, which is as long everywhere. */
struct area {
    uint32_t cpu_id_start, cpu_id;
    uint64_t rseq_cs;
    uint32_t flags, rest[3];
};
_Static_assert(sizeof(struct area) == 32, "a registration of this size is what every kernel takes, rseq(2)");

#define REGISTRATION_FAILED ((uint32_t)-2) /* libc asks the kernel then */

void hutch_rseq_renew(void)
{
#ifdef SIGNATURE
    volatile struct area *area;

    if (!&__rseq_offset || !&__rseq_size || __rseq_size == 0)
        return;
    area = (volatile struct area *)((char *)__builtin_thread_pointer() + __rseq_offset);
    if (syscall(SYS_rseq, area, sizeof(*area), 0, SIGNATURE) == 0)
        return;
    area->cpu_id_start = 0;
    area->cpu_id = REGISTRATION_FAILED;
#endif
}
