/* One job from its start, which happens at most once, to its result, which nothing can swallow. */
#include "execution.h"

#include "command.h"
#include "input.h"
#include "output.h"
#include "tree.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { KILL_AGAIN_MS = 100, DRAIN_MS = 100, MAX_STATE = 4 << 20, STATE_RESERVE = 16 << 10, RESERVE = 128 };
enum { CANNOT_START = 126, NO_PROCESS = 254 };
int report;

/* 0 where it is in the other directory now, or there is none. */
static int link_from(int before, const char *name, struct job *job) {
    return linkat(before, name, job->dir, name, 0) == 0 || errno == ENOENT || errno == EEXIST ? 0 : -1;
}

/* What the predecessor left is this job's state too, until it saves its own. */
static int inherit(struct job *job) {
    int before = is_key(job->after) ? open_entry("c", job->after) : -1;
    if (before < 0) return is_key(job->after) && errno != ENOENT ? -1 : 0;
    int failed = link_from(before, "cwd", job) || link_from(before, "state", job);
    close(before);
    return failed;
}

/* What the shell reads and leaves, opened before it counts as started. Room for what is saved at the end is taken
 * now: a full disk can't swallow a change of directory. */
static int open_shell_files(struct job *job) {
    struct header header;
    job->text = read_header(job->dir, "job", &header);
    job->inherited = openat(job->dir, "state", O_RDONLY | O_CLOEXEC);
    if (job->inherited < 0 && errno == ENOENT) job->inherited = open("/dev/null", O_RDONLY | O_CLOEXEC);
    job->state = openat(job->dir, ".state", O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0640);
    if (job->text < 0 || job->inherited < 0 || job->state < 0) return -1;
    if (fallocate(job->state, FALLOC_FL_KEEP_SIZE, 0, STATE_RESERVE) == 0) return 0;
    return errno == EOPNOTSUPP || errno == ENOSYS ? 0 : -1;
}

/* The saved state is the shell's exports, a NUL, and the directory. */
static void keep_state(struct job *job) {
    char tail[PATH_MAX + 1];
    int fd = openat(job->dir, ".state", O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    off_t size = fd < 0 ? 0 : lseek(fd, 0, SEEK_END);
    off_t from = size > PATH_MAX ? size - PATH_MAX : 0;
    ssize_t n = size > 0 && size <= MAX_STATE ? pread(fd, tail, size - from, from) : 0;
    char *nul = n > 0 ? memrchr(tail, 0, n) : NULL;
    int kept = nul && ftruncate(fd, from + (nul - tail)) == 0
               && replace_file(job->dir, "cwd", nul + 1, tail + n - (nul + 1)) == 0
               && renameat(job->dir, ".state", job->dir, "state") == 0;
    if (!kept) unlinkat(job->dir, ".state", 0);
    if (fd >= 0) close(fd);
}

static void kill_job(const struct job *job) {
    if (job->keeper_gone) {
        kill_strays();
        return;
    }
    kill_below(job->keeper);
    kill(job->keeper, SIGCONT); /* the command may have stopped it, and it has a status to report */
}

void finish_job(struct job *job) {
    char line[RESERVE];
    struct stat s = {0};
    if (job->finished) return;
    if (job->pty && job->writer >= 0) {
        read_terminal(job);
        if (job->writer >= 0) close(job->writer);
        job->writer = -1;
    }
    fstat(job->out, &s);
    if (s.st_size > job->max_output) {
        if (!job->verdict) { /* it ended by itself before anybody looked how much it had written */
            job->verdict = "output_limit";
            kill_job(job);
        }
        if (ftruncate(job->out, job->max_output) == 0) s.st_size = job->max_output;
    }
    int code = WIFEXITED(job->status) ? WEXITSTATUS(job->status) : 128 + WTERMSIG(job->status);
    if (job->verdict) code = strcmp(job->verdict, "timeout") ? 137 : 124;
    keep_state(job);
    int length = snprintf(line, sizeof line, "%s %d %lld\n", job->verdict ? job->verdict : "exited", code,
                          (long long)s.st_size);
    /* Into blocks that were reserved at the start: a full disk can't swallow a result. */
    if (pwrite(job->reserve, line, length, 0) == length && ftruncate(job->reserve, length) == 0)
        linkat(job->dir, ".reserve", job->dir, "done", 0);
    unlinkat(job->dir, ".reserve", 0);
    job->finished = 1;
    job->deadline = job->kill_at = job->drain_until = 0;
}

void command_ended(struct job *job, int status) {
    if (job->finished || job->drain_until) return;
    job->status = status;
    if (job->verdict) kill_job(job);
    if (job->pty && job->writer >= 0) job->drain_until = now() + DRAIN_MS;
    else finish_job(job);
}

void end_job(struct job *job, const char *verdict) {
    if (!job->verdict && !job->finished) {
        job->verdict = verdict;
        job->deadline = 0;
        if (job->grace > 0 && strcmp(verdict, "output_limit")) {
            signal_tree(job->keeper, SIGTERM);
            job->kill_at = now() + job->grace;
            return;
        }
    }
    kill_job(job);
    if (!job->finished) job->kill_at = now() + KILL_AGAIN_MS;
}

/* A kill that arrives before the job does: `started` is taken, so that nobody can start it any more. */
void never_start(const char *key) {
    int dir = open_entry("c", key);
    if (dir < 0) return;
    if (!publish_once(dir, "started", "0\n")) publish_once(dir, "done", "killed 137 0\n");
    close(dir);
}

static int reserve_result(struct job *job) {
    char padding[RESERVE];
    memset(padding, ' ', sizeof padding);
    job->reserve = openat(job->dir, ".reserve", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    return job->reserve >= 0 && write(job->reserve, padding, sizeof padding) == sizeof padding;
}

/* No shell ever ran, for want of something that is the host's: as if nobody had asked. The host may ask again. */
void take_back(struct job *job) {
    if (job->finished) return;
    unlinkat(job->dir, "started", 0);
    unlinkat(job->dir, ".reserve", 0);
    job->finished = job->keeper_gone = 1;
    job->deadline = job->kill_at = job->drain_until = 0;
}

static void refuse(struct job *job, int code) {
    job->keeper_gone = 1;
    job->status = code << 8;
    finish_job(job);
}

/* Terminals are what a sandbox can use up by itself. */
static void refuse_terminal(struct job *job, int why) {
    dprintf(job->out, "no terminal can be opened: %s\n", strerror(why));
    refuse(job, CANNOT_START);
}

/* Where this fails before `started`, nothing has happened, and the host may ask again. */
void start_job(const char *key) {
    char input[8];
    struct job *job = new_job(key);
    if (!job) return;
    if (job->dir < 0 || faccessat(job->dir, "started", F_OK, 0) == 0 || read_settings(job, input, sizeof input)) {
        free_job(job);
        return;
    }
    job->out = openat(job->dir, "out", O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0660);
    int ready = job->out >= 0 && reserve_result(job) && !inherit(job) && !open_shell_files(job);
    int standard_input = ready ? open_input(job, input) : -1, why = errno;
    if ((standard_input < 0 && !job->pty) || publish_once(job->dir, "started", instance)) {
        if (standard_input >= 0) close(standard_input);
        free_job(job);
        return;
    }
    job->look_at = now() + 20;
    job->next = jobs;
    jobs = job;
    job->keeper = standard_input < 0 ? -1 : fork();
    if (job->keeper == 0) become_keeper(job, standard_input, report);
    if (job->keeper > 0) add_helper(job->keeper);
    if (standard_input < 0) refuse_terminal(job, why);
    else if (job->keeper < 0 && errno != EAGAIN) take_back(job);
    else if (job->keeper < 0) refuse(job, NO_PROCESS);
    if (standard_input >= 0) close(standard_input);
    close_shell_files(job);
}

void forget_jobs_without_keeper(void) {
    for (struct job **at = &jobs; *at;) {
        struct job *job = *at;
        if (!job->keeper_gone || !job->finished) {
            at = &job->next;
            continue;
        }
        *at = job->next;
        forget_output(job);
        free_job(job);
    }
}
