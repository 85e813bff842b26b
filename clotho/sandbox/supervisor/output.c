/* The cap on output. Commands write their output file themselves, so somebody has to look how long it is:
 * every 20 ms while it grows; once it is quiet, a one-shot watch, so that silent commands cost nothing. */
#include "output.h"

#include <stdio.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LOOK_EVERY_MS = 20, LOOKS_UNTIL_QUIET = 5, LOOK_WITHOUT_WATCH_MS = 250 };
static int changes = -1;

int open_output_watch(void) { return changes = inotify_init1(IN_CLOEXEC | IN_NONBLOCK); }

static int grew(struct job *job) {
    struct stat s;
    if (fstat(job->out, &s) || s.st_size == job->seen_output) return 0;
    job->seen_output = s.st_size;
    return 1;
}

/* Looks where it is time to, and says whether there is more than the job may write. */
int exceeds_output(struct job *job) {
    if (job->watch > 0 || now() < job->look_at) return 0;
    job->quiet = grew(job) ? 0 : job->quiet + 1;
    job->look_at = now() + LOOK_EVERY_MS;
    if (job->quiet >= LOOKS_UNTIL_QUIET) {
        char path[32];
        snprintf(path, sizeof path, "/proc/self/fd/%d", job->out);
        job->watch = inotify_add_watch(changes, path, IN_MODIFY | IN_ONESHOT);
        if (job->watch < 0) job->look_at = now() + LOOK_WITHOUT_WATCH_MS;
        else if (grew(job)) job->quiet = 0; /* between the last look and the watch */
    }
    return job->seen_output > job->max_output;
}

void output_changed(void) {
    char events[4096] __attribute__((aligned(8)));
    ssize_t n;
    while ((n = read(changes, events, sizeof events)) > 0)
        for (char *at = events; at < events + n;) {
            struct inotify_event *event = (struct inotify_event *)at;
            for (struct job *job = jobs; job; job = job->next)
                if (job->watch == event->wd) job->watch = job->quiet = 0;
            at += sizeof *event + event->len;
        }
}

void forget_output(struct job *job) {
    if (job->watch > 0) inotify_rm_watch(changes, job->watch);
}
