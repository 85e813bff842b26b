/* Stopping all commands for an archive, and letting them go on when it ends.
 *
 * Parents have stopped before their children are told to, and go on after them: no shell sees a child of its own stop,
 * and no child stops in vfork(2), which its parent would wait for. Who stays in there does nothing either. What had been
 * stopped before stays so. Time that a job spends here doesn't count, and requests that would start something wait. */
#include "supervisor.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BY_LEVEL_MS = 100, AT_ONCE_MS = 30, LOOK_US = 100 };

struct request {
    struct request *next;
    char line[];
};

static pid_t *stopped;
static int stopped_count, stopped_room, processes;
static ms frozen_since;
static struct request *waiting, **last = &waiting;

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

static void freeze(void) {
    if (frozen_since) return;
    if (!all_stop(1, BY_LEVEL_MS)) all_stop(0, AT_ONCE_MS);
    frozen_since = now();
}

static void thaw(void) {
    if (!frozen_since || is_archiving()) return;
    go_on();
    ms time = now() - frozen_since;
    frozen_since = 0;
    for (struct job *job = jobs; job; job = job->next) {
        if (job->deadline) job->deadline += time;
        if (job->kill_at) job->kill_at += time;
    }
    struct request *due = waiting;
    waiting = NULL;
    last = &waiting;
    while (due) { /* one of them may stop the commands again, and the rest will wait again */
        struct request *request = due;
        due = request->next;
        obey(request->line);
        free(request);
    }
}

int is_frozen(void) { return frozen_since != 0; }

/* Stop the commands; returns how many processes there are. */
int freeze_for_archive(void) {
    freeze();
    return processes;
}

void archive_ended(void) { thaw(); }

/* Keeps `line` until the commands go on. */
void obey_later(const char *line) {
    struct request *request = malloc(sizeof *request + strlen(line) + 1);
    if (!request) return;
    request->next = NULL;
    strcpy(request->line, line);
    *last = request;
    last = &request->next;
}
