/* What a worker elsewhere waits for in the control directory. */
#ifndef WAITS_H
#define WAITS_H

#include "frames.h"

int open_waits(void);
int is_waited(void);
void begin_wait(struct request *request);
void end_wait(uint64_t number);
void answer_waits(void);

#endif
