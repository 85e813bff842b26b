/* One job from start to result. */
#ifndef EXECUTION_H
#define EXECUTION_H

#include "job.h"

extern int report; /* where keepers write */

void start_job(const char *key);
void end_job(struct job *job, const char *verdict);
void command_ended(struct job *job, int status);
void take_back(struct job *job);
void finish_job(struct job *job);
void never_start(const char *key);
void forget_jobs_without_keeper(void);

#endif
