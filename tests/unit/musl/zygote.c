/* zygote.c - a zygote without Python and without GNU's libc: the helper must load and fork in any. What it is given as
 * a job it prints. Compiled with musl-gcc. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    static char text[65536];
    void *helper = dlopen(argc > 1 ? argv[1] : "", RTLD_NOW);
    int (*serve)(char *, size_t), (*ready)(const char *), (*worker_ready)(void);

    if (!helper) {
        fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
    *(void **)&serve = dlsym(helper, "hutch_zygote_serve");
    *(void **)&ready = dlsym(helper, "hutch_zygote_ready");
    *(void **)&worker_ready = dlsym(helper, "hutch_worker_ready");
    if (!serve || !ready || !worker_ready || ready("") < 0) {
        perror("the zygote's helper");
        return 1;
    }
    for (;;) {
        ssize_t n;
        char *heap;

        switch (serve(text, sizeof(text))) {
        case 0:
            return 0;
        case 2:
            ready(text);
            continue;
        }
        heap = malloc(100000); /* libc must know of the fork */
        if (!heap || worker_ready() < 0)
            return 1;
        n = read(3, heap, 100000);
        return n < 0 || write(1, heap, (size_t)n) != n;
    }
}
