#include "runtime/text/ids.h"

#include "sandbox/fd.h"

#include <string.h>
#include <sys/random.h>

static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

int hutch_id_make(char ret[ID_LEN + 1], struct hutch_err *err)
{
    unsigned char random[ID_LEN];

    if (getrandom(random, sizeof(random), 0) != (ssize_t)sizeof(random))
        return hutch_err_set(err, errno, "draw a random name");
    for (int i = 0; i < ID_LEN; i++)
        ret[i] = letters[random[i] % 64]; /* 64 divides 256: each is as likely */
    ret[ID_LEN] = '\0';
    return 0;
}

bool hutch_id_is(const char *text)
{
    return strspn(text, letters) == ID_LEN && text[ID_LEN] == '\0';
}
