/* execute.h - execvpe(3) without malloc and without libc's own environment: for a child between fork(2) and execve(2),
 * also in whatever libc an image has. */
#ifndef HUTCH_EXECUTE_H
#define HUTCH_EXECUTE_H

/* Looks for argv[0] in @path, NULL: the usual directories, unless it has a slash. Returns only on failure, the errno:
 * EACCES of one candidate beats ENOENT of another, as shells have it. */
int hutch_execute(const char *path, char *const *argv, char *const *envp);

#endif
