#include "sandbox/sockets.h"

#include "sandbox/fd.h"

#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/sock_diag.h>
#include <linux/unix_diag.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>

#define SOCKET_BYTES 2048 /* a socket with its file and inode */
#define MAX_READS    4096 /* of an answer that has no end */

struct question {
    struct nlmsghdr header;
    union {
        struct unix_diag_req local;
        struct inet_diag_req_v2 inet;
    };
};

/* The attribute @type, of @size bytes at least; NULL without. */
static const void *find_attribute(const struct nlmsghdr *header, size_t skip, int type, size_t size)
{
    int left = (int)NLMSG_PAYLOAD(header, skip);

    for (const struct rtattr *at = (const struct rtattr *)((const char *)NLMSG_DATA(header) + NLMSG_ALIGN(skip));
         RTA_OK(at, left); at = RTA_NEXT(at, left))
        if (at->rta_type == type && RTA_PAYLOAD(at) >= size)
            return RTA_DATA(at);
    return NULL;
}

/* Unix sockets: what is on its way is counted for its sender, which may be gone. */
static uint64_t count_local(const struct nlmsghdr *header)
{
    size_t skip = sizeof(struct unix_diag_msg);
    const uint32_t *memory = find_attribute(header, skip, UNIX_DIAG_MEMINFO, (SK_MEMINFO_SNDBUF + 1) * sizeof(*memory));
    const struct unix_diag_rqlen *queue = find_attribute(header, skip, UNIX_DIAG_RQLEN, sizeof(*queue));
    const uint32_t *peer = find_attribute(header, skip, UNIX_DIAG_PEER, sizeof(*peer));
    uint64_t bytes = memory ? memory[SK_MEMINFO_WMEM_ALLOC] : 0;

    if (memory && queue && queue->udiag_rqueue > 0 && (!peer || *peer == 0)) /* 0: one that was closed */
        bytes += memory[SK_MEMINFO_SNDBUF];
    return bytes;
}

/* What TCP has still to send is in its queue, of which what is on its way are copies that share the data; UDP has no
 * queue. */
static uint64_t count_inet(const struct nlmsghdr *header)
{
    const uint32_t *memory = find_attribute(header, sizeof(struct inet_diag_msg), INET_DIAG_SKMEMINFO,
                                            (SK_MEMINFO_WMEM_QUEUED + 1) * sizeof(*memory));

    uint64_t sent;

    if (!memory)
        return 0;
    sent = memory[SK_MEMINFO_WMEM_QUEUED] > memory[SK_MEMINFO_WMEM_ALLOC] ? memory[SK_MEMINFO_WMEM_QUEUED]
                                                                           : memory[SK_MEMINFO_WMEM_ALLOC];
    return memory[SK_MEMINFO_RMEM_ALLOC] + sent;
}

/* Nothing where the kernel has no such table. */
static uint64_t ask(int fd, int family, int protocol)
{
    static char answer[32768] __attribute__((aligned(NLMSG_ALIGNTO)));
    struct question question = { .header.nlmsg_type = SOCK_DIAG_BY_FAMILY,
                                 .header.nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP };
    uint64_t bytes = 0;

    if (family == AF_UNIX) {
        question.header.nlmsg_len = NLMSG_LENGTH(sizeof(question.local));
        question.local = (struct unix_diag_req){
            .sdiag_family = AF_UNIX, .udiag_states = ~0u,
            .udiag_show = UDIAG_SHOW_PEER | UDIAG_SHOW_RQLEN | UDIAG_SHOW_MEMINFO };
    } else {
        question.header.nlmsg_len = NLMSG_LENGTH(sizeof(question.inet));
        question.inet = (struct inet_diag_req_v2){ .sdiag_family = (uint8_t)family,
                                                   .sdiag_protocol = (uint8_t)protocol,
                                                   .idiag_ext = 1 << (INET_DIAG_SKMEMINFO - 1), .idiag_states = ~0u };
    }
    if (TEMP_FAILURE_RETRY(send(fd, &question, question.header.nlmsg_len, 0)) < 0)
        return 0;
    for (int i = 0; i < MAX_READS; i++) {
        ssize_t n = TEMP_FAILURE_RETRY(recv(fd, answer, sizeof(answer), 0));
        unsigned left = (unsigned)n;

        if (n <= 0)
            return bytes;
        for (const struct nlmsghdr *at = (const void *)answer; NLMSG_OK(at, left); at = NLMSG_NEXT(at, left)) {
            if (at->nlmsg_type == NLMSG_DONE || at->nlmsg_type == NLMSG_ERROR)
                return bytes;
            if (at->nlmsg_type == SOCK_DIAG_BY_FAMILY)
                bytes += family == AF_UNIX ? count_local(at) : count_inet(at);
        }
    }
    return bytes;
}

int hutch_sockets_open(void)
{
    struct timeval patience = { .tv_sec = 1 };
    auto_fd fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);

    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)) < 0)
        return -1;
    return hutch_fd_take(&fd);
}

uint64_t hutch_sockets_memory(int fd, uint64_t n_used, uint64_t few)
{
    static const int protocols[] = { IPPROTO_TCP, IPPROTO_UDP, IPPROTO_UDPLITE };
    uint64_t bytes = n_used * SOCKET_BYTES;

    if (fd < 0 || n_used < few)
        return bytes;
    bytes += ask(fd, AF_UNIX, 0);
    for (size_t i = 0; i < ARRAY_SIZE(protocols); i++)
        bytes += ask(fd, AF_INET, protocols[i]) + ask(fd, AF_INET6, protocols[i]);
    return bytes;
}
