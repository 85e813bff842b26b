/* Becoming a job's keeper, and its command. */
#ifndef COMMAND_H
#define COMMAND_H

#include "job.h"

#include <sys/resource.h>

struct news { /* from a keeper; smaller than PIPE_BUF, so each arrives whole */
    pid_t keeper, command;
    int status, ended;
    int unstarted; /* an errno: no shell ever ran */
};

extern long long max_processes, max_file; /* bounds of every command; 0: none */
extern struct rlimit command_files;

void become_keeper(struct job *job, int standard_input, int report);

#endif
