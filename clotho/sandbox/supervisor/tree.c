/* Process trees: who descends from whom is read from /proc, since a command can change everything else. */
#include "tree.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_PROCESSES = 65536, KILL_PASSES = 200, PID_LIMIT = 1 << 22 };

struct process {
    pid_t pid, parent;
    char state;
    int depth;
    enum { UNKNOWN, INSIDE, OUTSIDE } place;
};
static struct process all[MAX_PROCESSES];
static int count;
static unsigned char helpers[PID_LIMIT / 8];

static int is_helper(pid_t pid) { return helpers[pid / 8] >> pid % 8 & 1; }
void add_helper(pid_t pid) { helpers[pid / 8] |= 1 << pid % 8; }
void forget_helper(pid_t pid) { helpers[pid / 8] &= ~(1 << pid % 8); }

static int read_process(const char *pid, struct process *process) {
    char path[64], line[512];
    snprintf(path, sizeof path, "/proc/%.20s/stat", pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, line, sizeof line - 1);
    if (fd >= 0) close(fd);
    if (n <= 0) return 0;
    line[n] = 0;
    char *end = strrchr(line, ')'); /* the name before it may hold anything, brackets too */
    if (!end || end[2] == 'Z') return 0;
    *process = (struct process){.pid = atoi(pid), .parent = atoi(end + 4), .state = end[2]};
    return 1;
}

static int by_pid(const void *a, const void *b) {
    return ((const struct process *)a)->pid - ((const struct process *)b)->pid;
}

static void read_processes(void) {
    struct dirent *entry;
    DIR *proc = opendir("/proc");
    count = 0;
    while (proc && (entry = readdir(proc)) && count < MAX_PROCESSES) {
        if (isdigit(entry->d_name[0]) && read_process(entry->d_name, &all[count])) count++;
    }
    if (proc) closedir(proc);
    qsort(all, count, sizeof *all, by_pid);
}

/* A parent that isn't listed has ended since: its children are found by their new parent in the next pass. */
static int descends_from(struct process *process, pid_t root, int depth) {
    if (process->place == UNKNOWN) {
        struct process wanted = {.pid = process->parent};
        struct process *parent = bsearch(&wanted, all, count, sizeof *all, by_pid);
        int inside = process->parent == root
                     || (parent && depth < MAX_PROCESSES && descends_from(parent, root, depth + 1));
        process->place = inside ? INSIDE : OUTSIDE;
        process->depth = parent ? parent->depth + 1 : 0;
    }
    return process->place == INSIDE;
}

/* Signals every process below `root`; returns how many there were. */
int signal_tree(pid_t root, int signal) {
    int hit = 0;
    read_processes();
    for (int i = 0; i < count; i++)
        if (all[i].pid != root && descends_from(&all[i], root, 0) && !kill(all[i].pid, signal)) hit++;
    return hit;
}

/* Children of ours that are no helpers: their keeper is dead and nobody can say whose they were: all of them go. */
void kill_strays(void) {
    static pid_t strays[MAX_PROCESSES];
    int n = 0;
    read_processes();
    for (int i = 0; i < count; i++)
        if (all[i].parent == getpid() && !is_helper(all[i].pid)) strays[n++] = all[i].pid;
    for (int i = 0; i < n; i++) {
        signal_tree(strays[i], SIGKILL);
        kill(strays[i], SIGKILL);
    }
}

static int by_depth(const void *a, const void *b) {
    return ((const struct process *)a)->depth - ((const struct process *)b)->depth;
}

/* Whether somebody else has told it to stop, or it has by now. A signal that isn't pending any more has taken effect. */
static int is_stopping(pid_t pid) {
    char path[64], text[4096];
    struct process process;
    snprintf(path, sizeof path, "/proc/%d/status", pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (fd >= 0) close(fd);
    text[n > 0 ? n : 0] = 0;
    char *pending = strstr(text, "\nShdPnd:");
    if (pending && strtoull(pending + 8, NULL, 16) & 1ULL << (SIGSTOP - 1)) return 1;
    snprintf(path, sizeof path, "%d", pid);
    return read_process(path, &process) && process.state == 'T';
}

/* Tells what runs of the commands to stop, and tells `found` of each; returns how many those were. `by_level`: only the
 * uppermost of them, since a shell whose child stops before it has come to a stop itself would notice. */
int stop_running(int by_level, void (*found)(pid_t), int *processes) {
    static struct process commands[MAX_PROCESSES];
    int n = 0, running = 0, level = -1;
    read_processes();
    for (int i = 0; i < count; i++)
        if (all[i].pid != getpid() && descends_from(&all[i], getpid(), 0) && !is_helper(all[i].pid))
            commands[n++] = all[i];
    qsort(commands, n, sizeof *commands, by_depth);
    for (int i = 0; i < n; i++) {
        if (strchr("TtX", commands[i].state)) continue;
        if (by_level && level >= 0 && commands[i].depth > level) break;
        int stopping = is_stopping(commands[i].pid);
        if (kill(commands[i].pid, SIGSTOP)) continue;
        level = commands[i].depth;
        if (!stopping) found(commands[i].pid); /* in a later pass it may be us who told it: it has been found then */
        running++;
    }
    *processes = n;
    return running;
}

void kill_below(pid_t root) {
    for (int pass = 0; pass < KILL_PASSES && signal_tree(root, SIGSTOP); pass++) signal_tree(root, SIGKILL);
}

/* In a pid namespace of our own one call reaches all; elsewhere that call would reach the whole machine. */
void kill_everything(void) {
    if (getpid() == 1) kill(-1, SIGKILL);
    else kill_below(getpid());
}
