/* What is known of a job, and all of them. */
#ifndef JOB_H
#define JOB_H

#include "control.h"

#include <sys/types.h>

struct input {
    struct input *next;
    int fd; /* -1: end of input */
};

struct job {
    struct job *next;
    char key[KEY_LENGTH + 1], after[KEY_LENGTH + 1], workdir[PATH_MAX];
    int dir, out, reserve;
    int text, inherited, state; /* what its shell reads and leaves; closed here once it has begun */
    int writer;          /* our end of its standard input, -1 without one; of its terminal, with a pty */
    int pty, background; /* background: somebody may want its pid */
    int silent;          /* says nothing in the output of a directory that is gone: its name is the agent's text */
    struct input *inputs;
    pid_t keeper, command; /* keeper: subreaper between us and the command, so that orphans stay attributable */
    int keeper_gone;       /* killed from inside; what it kept are our own children now */
    ms deadline, kill_at, grace, drain_until;
    long long max_output, seen_output;
    ms look_at;
    int quiet, watch;
    int status;
    const char *verdict; /* set once we decided to end it; else it is what the command itself did */
    int finished;        /* done is published; the keeper lives on while background processes do */
};

extern struct job *jobs;

struct job *find_job(const char *key);
struct job *new_job(const char *key);
int read_settings(struct job *job, char *input, size_t size);
void close_shell_files(struct job *job);
void free_job(struct job *job);

#endif
