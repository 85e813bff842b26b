/* A worker elsewhere, served over standard input and output. */
#ifndef RELAY_H
#define RELAY_H

int relay(void);

#endif
