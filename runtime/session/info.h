/* info.h - what a session is like at one moment, for its owner: as numbers, and as JSON with its lists. */
#ifndef HUTCH_SESSION_INFO_H
#define HUTCH_SESSION_INFO_H

#include "runtime/hutch.h"

struct session;

/* All fields of @ret. Nothing is waited for, and no tree is walked. */
void hutch_session_describe(struct session *session, struct hutch_session_info *ret);
/* @info and the lists, for the caller to free; NULL: ENOMEM. */
char *hutch_session_info_json(const struct session *session, const struct hutch_session_info *info);

#endif
