/* format.h - a wire format: its routes, and what its clients are told when something is refused. The server has a list
 * of them, and each has a room of its own that knows its requests and answers. */
#ifndef HUTCH_GATEWAY_FORMAT_H
#define HUTCH_GATEWAY_FORMAT_H

#include "runtime/gateway/error.h"
#include "runtime/gateway/route.h"
#include "runtime/text/ids.h"
#include "sandbox/err.h"

#include <stdbool.h>
#include <stddef.h>

struct server;

#define FORMATS_MAX 8
#define FORMAT_PREFIX_MAX 64

struct exchange;
struct placement;

struct format {
    const char *name;            /* of --format */
    const struct route *routes;
    size_t n_routes;
    /* The body of a refusal, application/json, the caller's to free; NULL: memory was short. *status, of HTTP, may be
     * changed. Without this function it is as error.h has it. */
    char *(*error_body)(enum gateway_error error, const char *message, unsigned *status, size_t *ret_len);
    /* The same where it depends on what was asked; instead of it. *type: Content-Type. */
    char *(*refusal)(const struct exchange *x, enum gateway_error error, const char *message, unsigned *status,
                     const char **type, size_t *ret_len);
    /* Asked before the body is read, for routes that need no token: whether something else that the request has is
     * enough, such as the secret id of what it is about. It sets x->token to whose that is, or refuses. */
    void (*admit)(struct exchange *x);
    bool names_are_given;        /* its clients name what they make: what else may give names is not asked */
    /* An id of its own making, as one of hutch's. False: it is none. NULL: they are the same. */
    bool (*read_id)(const char *text, char ret[ID_LEN + 1]);
    /* Where several workers serve: which of them has what the request is about. *ret is PLACE_ANY before. NULL: all
     * that it is about is in the request. */
    void (*place)(const struct exchange *x, struct placement *ret);
    /* The same of one that was PLACE_ANY, when its body is there, whatever that is. NULL: its body says nothing of
     * it. */
    void (*place_body)(const struct exchange *x, struct placement *ret);
    /* A header that may have the token instead of 'Authorization: Bearer'; NULL: there is none. */
    const char *token_header;
    bool is_rare;                /* only where --format names it: another format has some of its paths */
    bool takes_any_type;         /* its clients say all kinds of Content-Type for JSON */
    const struct format_state *state; /* NULL: it keeps nothing beside the exchanges */
};

/* What a format keeps for as long as the server lives, as an object of its own. */
struct format_state {
    /* @prefix: of its paths; lives as long. NULL with *err. */
    void *(*open)(struct server *server, const char *prefix, struct hutch_err *err);
    /* When tick() is due, in milliseconds of the clock; negative: never. */
    double (*deadline)(const void *state);
    /* Once in each turn of the loop, when nothing else is at work. */
    void (*tick)(void *state);
    /* The engine and all exchanges are gone. */
    void (*close)(void *state);
};

/* The formats that a server has, each below its prefix. Its own is first. */
struct formats {
    struct {
        const struct format *format;
        char prefix[FORMAT_PREFIX_MAX]; /* "" or "/name", without a slash at its end */
        void *state;                    /* NULL: it has none, or not yet */
    } list[FORMATS_MAX];
    size_t n;
};

extern const struct format hutch_native_format; /* runtime/gateway/routes.c */

/* @known: all that there are, ends with NULL. @wanted: "NAME" or "NAME=/PREFIX", ends with NULL; NULL: all but the rare
 * ones. The native one is always there. -1: one is not known or twice, or a prefix is none. */
int hutch_formats_choose(const struct format *const *known, const char *const *wanted, struct formats *ret,
                         struct hutch_err *err);

/* One more, whatever was chosen. */
int hutch_formats_add(struct formats *f, const struct format *format, const char *prefix, struct hutch_err *err);

/* As hutch_route_find(), in the first format that has the path; *ret_format is then that format. Where no route is
 * found, it is the one whose prefix the path begins with; among those without a prefix, the one that has a route which
 * begins as the path does, for most of its parts. Where none has, it is the only one beside the native one, or that. */
int hutch_formats_find(const struct formats *f, const char *method, const char *path, const struct format **ret_format,
                       const struct route **ret_route, bool *ret_other, char *params[ROUTE_MAX_PARAMS],
                       struct hutch_err *err);

/* The place of a format in the list, by its name, for counters; 0, the native one's, where it is not there. */
size_t hutch_formats_index(const struct formats *f, const char *name);

/* What @format keeps. */
void *hutch_formats_state(const struct formats *f, const struct format *format);
/* Of all that keep something. */
int hutch_formats_open(struct formats *f, struct server *server, struct hutch_err *err);
double hutch_formats_deadline(const struct formats *f);
void hutch_formats_tick(struct formats *f);
void hutch_formats_close(struct formats *f);

/* As hutch_route_methods(). */
void hutch_formats_methods(const struct formats *f, const char *path, char *to, size_t size);

/* The number of a route among those of all formats, for counters; ROUTE_MAX when it is NULL. */
size_t hutch_formats_number(const struct formats *f, const struct route *route);
/* The route of a number, and *ret_prefix of its format; NULL: there is none. */
const struct route *hutch_formats_route(const struct formats *f, size_t number, const char **ret_prefix);

#endif
