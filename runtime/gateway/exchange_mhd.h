/* exchange_mhd.h - what MHD calls for an exchange. */
#ifndef HUTCH_GATEWAY_EXCHANGE_MHD_H
#define HUTCH_GATEWAY_EXCHANGE_MHD_H

#include <microhttpd.h>

struct connection;
struct exchange;

/* MHD_AccessHandlerCallback; @server is the struct server. */
enum MHD_Result hutch_exchange_hear(void *server, struct MHD_Connection *mhd, const char *path, const char *method,
                                    const char *version, const char *data, size_t *len, void **state);
/* Status 101, without headers; @on_upgrade is called when it was sent, and then takes the connection. */
void hutch_exchange_upgrade(struct exchange *x, MHD_UpgradeHandler on_upgrade, void *cls);
/* MHD_RequestCompletedCallback. */
void hutch_exchange_on_completed(void *server, struct MHD_Connection *mhd, void **state,
                                 enum MHD_RequestTerminationCode how);

/* struct connections' on_late: status 408, in the words of the request's format. */
void hutch_exchange_on_late(void *server, const struct connection *c);

#endif
