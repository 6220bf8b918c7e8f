/* notify.h - tells the service manager how far the server is: sd_notify(3), without its library. */
#ifndef HUTCH_GATEWAY_NOTIFY_H
#define HUTCH_GATEWAY_NOTIFY_H

/* @state: "READY=1", "STOPPING=1". Without $NOTIFY_SOCKET nothing happens; nothing is waited for, and a manager that
 * does not listen is no error. */
void hutch_notify(const char *state);

#endif
