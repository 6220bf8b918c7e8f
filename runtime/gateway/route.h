/* route.h - which function answers a method and a path. */
#ifndef HUTCH_GATEWAY_ROUTE_H
#define HUTCH_GATEWAY_ROUTE_H

#include "sandbox/err.h"

#include <stdbool.h>
#include <stddef.h>

struct exchange;

#define ROUTE_MAX_PARAMS 3
#define ROUTE_MAX 256 /* of all formats */

enum route_body {
    ROUTE_NO_BODY,
    ROUTE_JSON,  /* application/json, gathered up to the server's limit before the function is called */
    ROUTE_LINES, /* the same of application/x-ndjson */
    ROUTE_CALL,  /* ROUTE_JSON; or function_request.h */
    ROUTE_FORM,  /* ROUTE_JSON; or multipart/form-data, which is given to functions of the route as it comes */
    ROUTE_STREAM /* anything, given to a function of the route as it comes */
};

struct route {
    const char *method;
    const char *path; /* "/v1/sessions/{id}/files/{path*}": a part in braces is a parameter, one with a star the rest */
    enum route_body body;
    bool is_open;     /* nobody needs a token for it */
    void (*handle)(struct exchange *x); /* when the whole request is there */
    /* Of a body that comes as a stream: when the headers are there, and for each piece. What either refuses is not
     * called again. Both may hold the rest back, the second with a part of its piece: n_untaken. */
    void (*begin)(struct exchange *x);
    void (*take)(struct exchange *x, const char *data, size_t len);
};

/* Finds the route for @method and @path, which is as the client sent it, without its query. HEAD is answered as GET is.
 * 0 with *ret_route; it is NULL when no route has the path, or only for other methods: then *ret_other is true.
 * @params: decoded, in the order of the path, for the caller to free. -1: the path cannot be decoded. */
int hutch_route_find(const struct route *routes, size_t n, const char *method, const char *path,
                     const struct route **ret_route, bool *ret_other, char *params[ROUTE_MAX_PARAMS],
                     struct hutch_err *err);

/* The methods that @path has, for the header Allow: "GET, HEAD, POST". */
void hutch_route_methods(const struct route *routes, size_t n, const char *path, char *to, size_t size);

#endif
