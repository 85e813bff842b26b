/* What is known of a job from its request on, and the list of all jobs. */
#include "job.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { GRACE_MS = 2000 };
struct job *jobs;

struct job *find_job(const char *key) {
    for (struct job *job = jobs; job; job = job->next)
        if (!strcmp(job->key, key)) return job;
    return NULL;
}

void close_shell_files(struct job *job) {
    int *files[] = {&job->text, &job->inherited, &job->state};
    for (int i = 0; i < 3; i++) {
        if (*files[i] >= 0) close(*files[i]);
        *files[i] = -1;
    }
}

void free_job(struct job *job) {
    while (job->inputs) {
        struct input *input = job->inputs;
        job->inputs = input->next;
        if (input->fd >= 0) close(input->fd);
        free(input);
    }
    if (job->dir >= 0) close(job->dir);
    if (job->out >= 0) close(job->out);
    if (job->reserve >= 0) close(job->reserve);
    if (job->writer >= 0) close(job->writer);
    close_shell_files(job);
    free(job);
}

/* NULL where there is no memory. */
struct job *new_job(const char *key) {
    struct job *job = calloc(1, sizeof *job);
    if (!job) return NULL;
    job->out = job->reserve = job->writer = job->text = job->inherited = job->state = -1;
    strcpy(job->key, key);
    job->dir = open_entry("c", key);
    return job;
}

int read_settings(struct job *job, char *input, size_t size) {
    struct header header;
    int fd = read_header(job->dir, "job", &header);
    if (fd < 0) return -1;
    close(fd);
    long long timeout = header_number(&header, "timeout_ms", 0);
    job->deadline = timeout > 0 ? now() + timeout : 0;
    job->grace = header_number(&header, "grace_ms", GRACE_MS);
    job->max_output = header_number(&header, "max_output", LLONG_MAX);
    job->background = (int)header_number(&header, "background", 0);
    job->silent = (int)header_number(&header, "silent", 0);
    header_value(&header, "after", job->after, sizeof job->after);
    header_value(&header, "workdir", job->workdir, sizeof job->workdir);
    header_value(&header, "input", input, size);
    return 0;
}
