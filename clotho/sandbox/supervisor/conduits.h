/* FIFOs of the control directory, as a worker elsewhere reads and writes them. */
#ifndef CONDUITS_H
#define CONDUITS_H

#include "frames.h"

#include <poll.h>

enum { MOST_CONDUITS = 16 };

void open_conduit(struct request *request);
void ask_conduit(struct request *request, int writing);
void close_conduit(struct request *request);
int choose_conduits(struct pollfd polled[MOST_CONDUITS]);
void serve_conduit(const struct pollfd *polled);

#endif
