/* The cap on a job's output. */
#ifndef OUTPUT_H
#define OUTPUT_H

#include "job.h"

int open_output_watch(void);
int exceeds_output(struct job *job);
void output_changed(void);
void forget_output(struct job *job);

#endif
