#include "sandbox/sysv.h"

#include <string.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <unistd.h>

/* The kernel's structures, rounded up. */
#define SEGMENT_BYTES 2048 /* with its file and inode */
#define QUEUE_BYTES   512
#define MESSAGE_BYTES 64
#define SET_BYTES     512
#define SEMAPHORE_BYTES 64
#define UNDO_BYTES    96 /* of one thread for one set, and two bytes for each of its semaphores */

uint64_t hutch_sysv_memory(uint64_t n_threads)
{
    union { /* semctl(2) wants the caller to declare it */
        int val;
        struct seminfo *info;
    } arg;
    struct shm_info shm;
    struct msginfo msg;
    struct seminfo sem;
    uint64_t bytes = 0;

    memset(&shm, 0, sizeof(shm));
    memset(&msg, 0, sizeof(msg));
    memset(&sem, 0, sizeof(sem));
    if (shmctl(0, SHM_INFO, (void *)&shm) >= 0)
        bytes += ((uint64_t)shm.shm_rss + (uint64_t)shm.shm_swp) * (uint64_t)sysconf(_SC_PAGESIZE) +
                 (uint64_t)(unsigned)shm.used_ids * SEGMENT_BYTES;
    if (msgctl(0, MSG_INFO, (void *)&msg) >= 0)
        bytes += (uint64_t)(unsigned)msg.msgpool * QUEUE_BYTES + (uint64_t)(unsigned)msg.msgmap * MESSAGE_BYTES +
                 (uint64_t)(unsigned)msg.msgtql;
    arg.info = &sem;
    if (semctl(0, 0, SEM_INFO, arg) >= 0)
        bytes += (uint64_t)(unsigned)sem.semusz * (SET_BYTES + n_threads * UNDO_BYTES) +
                 (uint64_t)(unsigned)sem.semaem * (SEMAPHORE_BYTES + 2 * n_threads);
    return bytes;
}
