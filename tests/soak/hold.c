#include "soak.h"

#include <stdio.h>

int soak_hold(const struct settings *settings)
{
    struct load load;
    bool is_ready = false;

    load_open(&load, settings, 1u << 22);
    puts("open");
    fflush(stdout);
    while (load.n < load.room && complaints == 0) {
        load_turn(&load, now_ms() + 100);
        if (!is_ready && load.ok > 20) {
            is_ready = true;
            puts("ready");
            fflush(stdout);
        }
    }
    return -1;
}
