/* machine.h - which images this machine can run: the architecture and its variants, as the OCI names them. */
#ifndef HUTCH_MACHINE_H
#define HUTCH_MACHINE_H

/* "amd64", "arm64"; "" for one that has no name here. */
const char *hutch_machine_architecture(void);

/* The variant that an image of @arch without one is for: "v8" of arm64, "v7" of arm, "" of others. */
const char *hutch_machine_usual_variant(const char *arch);

/* Other variants of @arch that this machine runs, the best first; NULL after the last one. */
const char *hutch_machine_variant(const char *arch, unsigned n);

/* The level of x86-64, 1 to 4, of a machine with these @flags of /proc/cpuinfo, which end at a newline or NUL.
 * Source: x86-64 psABI, section "Micro-Architecture Levels". */
int hutch_machine_x86_level(const char *flags);

#endif
