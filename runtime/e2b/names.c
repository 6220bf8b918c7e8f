#include "runtime/e2b/names.h"

#include <string.h>
#include <strings.h>

static const char id_letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
static const char name_letters[] = "abcdefghijklmnopqrstuvwxyz234567";

/* @n numbers of @bits each become numbers of @ret_bits each; what is left over at the end is filled up with zeros, or
 * dropped. */
static void repack(const unsigned char *from, size_t n, unsigned bits, unsigned char *to, size_t n_to, unsigned to_bits)
{
    unsigned held = 0, n_held = 0;
    size_t at = 0;

    for (size_t i = 0; i < n_to; i++) {
        while (n_held < to_bits) {
            held = held << bits | (at < n ? from[at] : 0);
            at++;
            n_held += bits;
        }
        n_held -= to_bits;
        to[i] = (unsigned char)(held >> n_held & ((1u << to_bits) - 1));
        held &= (1u << n_held) - 1;
    }
}

void hutch_e2b_name_write(const char id[ID_LEN + 1], char ret[E2B_ID_LEN + 1])
{
    unsigned char numbers[ID_LEN], packed[E2B_ID_LEN];

    for (size_t i = 0; i < ID_LEN; i++) {
        const char *letter = id[i] ? strchr(id_letters, id[i]) : NULL;

        numbers[i] = letter ? (unsigned char)(letter - id_letters) : 0;
    }
    repack(numbers, ID_LEN, 6, packed, E2B_ID_LEN, 5);
    for (size_t i = 0; i < E2B_ID_LEN; i++)
        ret[i] = name_letters[packed[i]];
    ret[E2B_ID_LEN] = '\0';
}

bool hutch_e2b_name_read(const char *name, char ret[ID_LEN + 1])
{
    unsigned char numbers[E2B_ID_LEN], packed[ID_LEN];
    char again[E2B_ID_LEN + 1];
    bool is_one = strlen(name) == E2B_ID_LEN;

    memset(ret, '\0', ID_LEN + 1);
    for (size_t i = 0; is_one && i < E2B_ID_LEN; i++) {
        char c = name[i] >= 'A' && name[i] <= 'Z' ? (char)(name[i] - 'A' + 'a') : name[i];
        const char *letter = strchr(name_letters, c);

        is_one = letter != NULL;
        numbers[i] = letter ? (unsigned char)(letter - name_letters) : 0;
    }
    if (!is_one)
        return false;
    repack(numbers, E2B_ID_LEN, 5, packed, ID_LEN, 6);
    for (size_t i = 0; i < ID_LEN; i++)
        ret[i] = id_letters[packed[i]];
    hutch_e2b_name_write(ret, again); /* one name for each id: the bits that are left over are zeros */
    if (strcasecmp(again, name) == 0)
        return true;
    memset(ret, '\0', ID_LEN + 1);
    return false;
}

bool hutch_e2b_name_of_host(const char *host, char ret_name[E2B_ID_LEN + 1], unsigned *ret_port)
{
    unsigned port = 0;
    size_t n = strspn(host, "0123456789");

    if (n == 0 || n > 5 || host[n] != '-' || strlen(host + n + 1) <= E2B_ID_LEN || host[n + 1 + E2B_ID_LEN] != '.')
        return false;
    for (size_t i = 0; i < n; i++)
        port = port * 10 + (unsigned)(host[i] - '0');
    memcpy(ret_name, host + n + 1, E2B_ID_LEN);
    ret_name[E2B_ID_LEN] = '\0';
    *ret_port = port;
    return true;
}
