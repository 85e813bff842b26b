/* Stopping all commands for an archive, and letting them go on when it ends.
 *
 * Parents have stopped before their children are told to, and go on after them: no shell sees a child of its own stop,
 * and no child stops in vfork(2), which its parent would wait for. Who stays in there does nothing either. What had been
 * stopped before stays so. Time that a job spends here doesn't count. */
#include "freeze.h"

#include "job.h"
#include "tree.h"

#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

enum { BY_LEVEL_MS = 100, AT_ONCE_MS = 30, LOOK_US = 100 };

static pid_t *stopped;
static int stopped_count, stopped_room, processes;
static ms frozen_since;

static void remember(pid_t pid) {
    for (int i = 0; i < stopped_count; i++)
        if (stopped[i] == pid) return;
    if (stopped_count == stopped_room) {
        stopped_room = stopped_room ? stopped_room * 2 : 64;
        if (!(stopped = realloc(stopped, stopped_room * sizeof *stopped))) abort();
    }
    stopped[stopped_count++] = pid;
}

static void go_on(void) {
    while (stopped_count) kill(stopped[--stopped_count], SIGCONT);
}

static int all_stop(int by_level, ms patience) {
    for (ms until = now() + patience; stop_running(by_level, remember, &processes); usleep(LOOK_US))
        if (now() >= until) return 0;
    return 1;
}

/* Stops the commands; returns how many processes there are. */
int freeze(void) {
    if (frozen_since) return processes;
    if (!all_stop(1, BY_LEVEL_MS)) all_stop(0, AT_ONCE_MS);
    frozen_since = now();
    return processes;
}

void thaw(void) {
    if (!frozen_since) return;
    go_on();
    ms time = now() - frozen_since;
    frozen_since = 0;
    for (struct job *job = jobs; job; job = job->next) {
        if (job->deadline) job->deadline += time;
        if (job->kill_at) job->kill_at += time;
    }
}

int is_frozen(void) { return frozen_since != 0; }
