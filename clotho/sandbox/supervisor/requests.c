/* The host's requests, one a line. What would start or end something waits while the commands are stopped. */
#include "requests.h"

#include "control.h"
#include "execution.h"
#include "freeze.h"
#include "input.h"
#include "transfer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct request {
    struct request *next;
    char line[];
};

ms lease_until;
int leaving, sealing;
static long long fence; /* what asks under a lower number comes too late */
static struct request *waiting, **last = &waiting;

static void run_requested(const char *key) {
    if (sealing) never_start(key);
    else if (!find_job(key)) start_job(key);
}

static void kill_requested(const char *key) {
    struct job *job = find_job(key);
    if (job) end_job(job, "killed");
    else never_start(key);
}

static void input_requested(char *argument) {
    char *request = strchr(argument, ' ');
    if (!request) return;
    *request++ = 0;
    struct job *job = find_job(argument);
    if (job && is_key(request)) accept_input(job, request);
}

/* What would start something, or end it, while the commands are stopped. */
static int must_wait(const char *line) {
    int file = !strncmp(line, "file ", 5);
    if (file || !is_frozen()) return file && is_archiving();
    return !strncmp(line, "run ", 4) || !strncmp(line, "kill ", 5) || !strncmp(line, "input ", 6);
}

/* Keeps `line` until the commands go on. */
static void obey_later(const char *line) {
    struct request *request = malloc(sizeof *request + strlen(line) + 1);
    if (!request) return;
    request->next = NULL;
    strcpy(request->line, line);
    *last = request;
    last = &request->next;
}

/* Whoever takes work over raises the fence first: what the one before still asks for then has no effect. */
static void fence_requested(const char *text) {
    char line[24];
    long long number = natural(text);
    if (number <= fence || number > MOST) return;
    fence = number;
    snprintf(line, sizeof line, "%lld\n", fence);
    replace_file(control, "fence", line, strlen(line));
}

/* Cuts the number off a request, ` #NUMBER`; without one it is 0. */
static int is_fenced(char *argument) {
    char *number = strstr(argument, " #");
    if (!number) return fence > 0;
    *number = 0;
    return natural(number + 2) < fence;
}

/* A number of seconds that makes no sense as a duration changes nothing. */
static void lease_requested(const char *text) {
    long long seconds = natural(text);
    if (seconds > 0 && seconds <= MOST / 1000) lease_until = now() + seconds * 1000;
}

static void obey_numbered(const char *verb, char *argument, int fenced) {
    if (!strcmp(verb, "file") && is_key(argument)) start_transfer(argument, fenced);
    if (fenced) return;
    if (!strcmp(verb, "input")) input_requested(argument);
    else if (!is_key(argument)) return;
    else if (!strcmp(verb, "run")) run_requested(argument);
    else if (!strcmp(verb, "kill")) kill_requested(argument);
}

static void obey(char *line) {
    if (must_wait(line)) {
        obey_later(line);
        return;
    }
    char *argument = strchr(line, ' ');
    if (argument) *argument++ = 0;
    if (!strcmp(line, "stop")) leaving = 1;
    else if (!strcmp(line, "seal")) sealing = 1;
    else if (!argument) return;
    else if (!strcmp(line, "lease")) lease_requested(argument);
    else if (!strcmp(line, "fence")) fence_requested(argument);
    else obey_numbered(line, argument, is_fenced(argument));
}

/* One of these may stop the commands again, and the rest will wait again. */
static void obey_waiting(void) {
    struct request *due = is_frozen() ? NULL : waiting;
    if (!due) return;
    waiting = NULL;
    last = &waiting;
    while (due) {
        struct request *request = due;
        due = request->next;
        obey(request->line);
        free(request);
    }
}

void read_requests(int queue) {
    static char text[8192];
    static size_t have;
    static int too_long; /* what comes up to the next line's end belongs to a line that isn't ours */
    obey_waiting();
    ssize_t n = read(queue, text + have, sizeof text - have);
    if (n <= 0) return;
    have += n;
    char *rest = text;
    for (char *end; (end = memchr(rest, '\n', text + have - rest)); rest = end + 1) {
        *end = 0;
        if (!too_long) obey(rest);
        obey_waiting(); /* an archive that couldn't begin has ended too */
        too_long = 0;
    }
    have = text + have - rest;
    memmove(text, rest, have);
    if (have < sizeof text) return;
    too_long = 1;
    have = 0;
}
