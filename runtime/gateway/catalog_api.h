/* catalog_api.h - what can be asked for: languages, and the limits of requests, and how. */
#ifndef HUTCH_GATEWAY_CATALOG_API_H
#define HUTCH_GATEWAY_CATALOG_API_H

struct exchange;

void hutch_catalog_languages(struct exchange *x);
void hutch_catalog_policies(struct exchange *x);
void hutch_catalog_openapi(struct exchange *x); /* the document that describes the native API */

#endif
