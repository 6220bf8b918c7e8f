/* inside.h - where hutch puts what every sandbox has, as paths inside. */
#ifndef HUTCH_INSIDE_H
#define HUTCH_INSIDE_H

#define INSIDE_DATA_DIR "/mnt/data"  /* what goes in and comes out: the directory that outlives the sandbox */
#define INSIDE_OWN_DIR  "/run/hutch" /* hutch's own files, read-only: the program, the interpreter's hooks */

#endif
