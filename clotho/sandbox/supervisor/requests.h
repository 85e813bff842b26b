/* The host's requests. */
#ifndef REQUESTS_H
#define REQUESTS_H

#include "control.h"

extern ms lease_until;
extern int leaving, sealing;

void read_requests(int queue);

#endif
