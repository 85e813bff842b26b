/* What is written to a running job: requests are taken over once, queued, and fed as the job reads. */
#include "input.h"

#include "user.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

/* Returns the job's standard input, and keeps our end in job->writer where there is one. */
int open_input(struct job *job, const char *kind) {
    job->writer = -1;
    if (!strcmp(kind, "pty")) {
        struct winsize size = {.ws_row = 24, .ws_col = 80};
        int unlock = 0;
        job->pty = 1;
        job->writer = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK);
        if (job->writer < 0 || ioctl(job->writer, TIOCSPTLCK, &unlock)) return -1;
        ioctl(job->writer, TIOCSWINSZ, &size);
        int terminal = ioctl(job->writer, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
        give_to_commands(terminal);
        return terminal;
    }
    if (!strcmp(kind, "pipe")) {
        int ends[2];
        if (pipe2(ends, O_CLOEXEC)) return -1;
        job->writer = ends[1];
        fcntl(job->writer, F_SETFL, O_NONBLOCK);
        give_to_commands(ends[0]);
        return ends[0];
    }
    if (!strcmp(kind, "file")) return openat(job->dir, "stdin", O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    return open("/dev/null", O_RDONLY | O_CLOEXEC);
}

static void drop_input(struct job *job) {
    struct input *first = job->inputs;
    job->inputs = first->next;
    if (first->fd >= 0) close(first->fd);
    free(first);
}

static void close_writer(struct job *job) {
    while (job->inputs) drop_input(job);
    if (job->writer >= 0) close(job->writer);
    job->writer = -1;
}

/* in.REQUEST becomes taken.REQUEST: a request that is asked for again is known by that name. Empty: end of input. */
void accept_input(struct job *job, const char *request) {
    char from[64], to[64];
    struct input **last = &job->inputs, *input = calloc(1, sizeof *input);
    snprintf(from, sizeof from, "in.%s", request);
    snprintf(to, sizeof to, "taken.%s", request);
    if (!input) return;
    if (faccessat(job->dir, to, F_OK, 0) == 0 || renameat(job->dir, from, job->dir, to)) {
        free(input);
        return;
    }
    input->fd = openat(job->dir, to, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (input->fd >= 0 && lseek(input->fd, 0, SEEK_END) == 0) {
        close(input->fd);
        input->fd = -1;
    }
    if (input->fd >= 0) lseek(input->fd, 0, SEEK_SET);
    while (*last) last = &(*last)->next;
    *last = input;
    feed_input(job);
}

static int feed_end(struct job *job) {
    if (!job->pty) {
        close_writer(job);
        return 0;
    }
    if (write(job->writer, "\x04", 1) < 0 && errno == EAGAIN) return 0;
    drop_input(job);
    return 1;
}

void feed_input(struct job *job) {
    char bytes[4096]; /* PIPE_BUF: a pipe takes such a write whole or not at all */
    if (job->writer < 0)
        while (job->inputs) drop_input(job);
    while (job->inputs) {
        struct input *first = job->inputs;
        if (first->fd < 0) {
            if (!feed_end(job)) return;
            continue;
        }
        ssize_t n = read(first->fd, bytes, sizeof bytes), written;
        if (n <= 0) {
            drop_input(job);
            continue;
        }
        written = write(job->writer, bytes, n);
        if (written < n) lseek(first->fd, (written < 0 ? 0 : written) - n, SEEK_CUR);
        if (written >= 0) continue;
        if (errno != EAGAIN) close_writer(job); /* it has closed its standard input */
        return;
    }
}

void read_terminal(struct job *job) {
    char bytes[65536];
    ssize_t n;
    while ((n = read(job->writer, bytes, sizeof bytes)) > 0)
        if (write(job->out, bytes, n) < 0) break;
    if (n < 0 && errno == EAGAIN) return;
    close_writer(job);
    job->drain_until = job->drain_until ? now() : 0;
}
