/* status_api.h - how the server is: /healthz, /readyz, /metrics, /v1/pools. */
#ifndef HUTCH_GATEWAY_STATUS_API_H
#define HUTCH_GATEWAY_STATUS_API_H

struct exchange;

void hutch_status_health(struct exchange *x);  /* 200 as long as the engine can run something */
void hutch_status_ready(struct exchange *x);   /* 200 when the pool is filled and requests are taken, else 503 */
void hutch_status_metrics(struct exchange *x);
void hutch_status_pools(struct exchange *x);   /* the zygotes and what is prepared of each */

#endif
