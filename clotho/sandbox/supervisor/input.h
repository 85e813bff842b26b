/* What is written to a job while it runs. */
#ifndef INPUT_H
#define INPUT_H

#include "job.h"

int open_input(struct job *job, const char *kind);
void accept_input(struct job *job, const char *request);
void feed_input(struct job *job);
void read_terminal(struct job *job);

#endif
