#include "runtime/hutch.h"

const char *hutch_verdict_text(enum hutch_verdict verdict)
{
    switch (verdict) {
    case HUTCH_OK:
        return "ok";
    case HUTCH_ERROR:
        return "error";
    case HUTCH_TIMEOUT:
        return "timeout";
    case HUTCH_CPU_TIME:
        return "cpu_time";
    case HUTCH_OUT_OF_MEMORY:
        return "out_of_memory";
    case HUTCH_OUTPUT_LIMIT:
        return "output_limit";
    case HUTCH_KILLED:
        return "killed";
    case HUTCH_DENIED:
        return "denied";
    case HUTCH_SETUP_FAILED:
        return "setup_failed";
    }
    return "unknown";
}
