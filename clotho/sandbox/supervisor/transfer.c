/* Children that read or write files for the host: with the sandbox's rights, in the sandbox's view.
 * An archive is made while the commands are stopped, one at a time, and within its time. */
#include "transfer.h"

#include "answer.h"
#include "command.h"
#include "file.h"
#include "freeze.h"
#include "manifest.h"
#include "pack.h"
#include "tree.h"
#include "unpack.h"
#include "user.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { STOP_MS = 2000, ARCHIVE_MS = 60000, UNANSWERED = 1 };

struct transfer {
    struct transfer *next;
    char key[KEY_LENGTH + 1], verb[12];
    pid_t child;
    int dir, freezes, told;
    ms deadline;
};
static struct transfer *transfers;
static pid_t spare;

/* Where commands may take every process that a sandbox can have, as in a container, one is kept for the host's
 * requests. It makes way while the commands stand still. */
void keep_spare(void) {
    if (spare > 0 || max_processes > 0 || getpid() != 1) return;
    spare = fork();
    if (spare > 0) add_helper(spare);
    if (spare) return;
    close_from(0);
    for (;;) pause();
}

static pid_t fork_transfer(void) {
    pid_t child = fork();
    if (child >= 0 || spare <= 0 || !is_frozen()) return child;
    kill(spare, SIGKILL);
    waitpid(spare, NULL, 0);
    forget_helper(spare);
    spare = 0;
    return fork();
}

static void open_descriptors(struct transfer *transfer, const char *content, int flags) {
    int from[] = {openat(transfer->dir, content, flags, 0600),
                  openat(transfer->dir, ".done", O_WRONLY | O_CREAT | O_TRUNC, 0600), transfer->dir};
    if (from[0] < 0 || from[1] < 0) _exit(UNANSWERED);
    for (int i = 0; i < 3; i++)
        if ((from[i] = fcntl(from[i], F_DUPFD, 100)) < 0) _exit(UNANSWERED);
    for (int i = 0; i < 3; i++) dup2(from[i], CONTENT + i);
    for (int fd = 0; fd < CONTENT; fd++) close(fd);
    close_from(ENTRY + 1);
    for (int fd = 0; fd < CONTENT; fd++) open("/dev/null", O_RDWR);
}

static void stop(int signal) {
    (void)signal;
    told_to_stop = 1;
}

static void listen_for_stop(void) {
    struct sigaction action = {.sa_handler = stop}; /* without SA_RESTART: what waits is interrupted */
    sigset_t none;
    sigemptyset(&none);
    sigaction(SIGTERM, &action, NULL);
    sigprocmask(SIG_SETMASK, &none, NULL);
}

static void become_transfer(struct transfer *transfer, int processes) {
    struct header header;
    char after[KEY_LENGTH + 1], path[2 * PATH_MAX], given[PATH_MAX], left[PATH_MAX], here[PATH_MAX] = "";
    int request = read_header(transfer->dir, "request", &header);
    if (request < 0) _exit(UNANSWERED);
    header_value(&header, "after", after, sizeof after);
    ssize_t n = read(request, given, sizeof given - 1);
    given[n > 0 ? n : 0] = 0;
    if (transfer->deadline) listen_for_stop();
    if (!strcmp(transfer->verb, "pack") || !strcmp(transfer->verb, "unpack")) {
        open_descriptors(transfer, "request", O_RDONLY);
        if (*transfer->verb == 'p') pack(&header, processes);
        unpack(&header);
    }
    int putting = !strcmp(transfer->verb, "put");
    directory_left_by(after, left);
    open_descriptors(transfer, "content", putting ? O_RDONLY : O_WRONLY | O_CREAT | O_TRUNC);
    int listing = !strcmp(transfer->verb, "manifest");
    if (listing ? become_archive_user() : become_command_user()) _exit(UNANSWERED);
    if (listing) write_manifest(&header);
    if (*left && chdir(left)) *left = 0; /* gone: paths start in the workspace then, as commands do */
    close(ENTRY);
    umask(022);
    signal(SIGPIPE, SIG_DFL);
    if (*given != '/' && !getcwd(here, sizeof here)) answer_errno();
    snprintf(path, sizeof path, "%s/%s", strcmp(here, "/") ? here : "", *given == '/' ? given + 1 : given);
    if (!*given) answer("not_found", 0);
    if (putting) put(&header, path, transfer->key);
    get(&header, path, header_number(&header, "max", LLONG_MAX));
}

static int read_verb(struct transfer *transfer) {
    struct header header;
    int request = read_header(transfer->dir, "request", &header);
    if (request < 0) return -1;
    close(request);
    header_value(&header, "verb", transfer->verb, sizeof transfer->verb);
    transfer->freezes = !strcmp(transfer->verb, "pack") || !strcmp(transfer->verb, "manifest");
    if (transfer->freezes || !strcmp(transfer->verb, "unpack"))
        transfer->deadline = now() + header_number(&header, "timeout_ms", ARCHIVE_MS);
    if (header_number(&header, "steady", 0)) transfer->freezes = 1; /* it was killed before */
    return 0;
}

int is_archiving(void) {
    for (struct transfer *t = transfers; t; t = t->next)
        if (t->freezes) return 1;
    return 0;
}

static void archive_ended(const struct transfer *transfer) {
    if (!transfer->freezes || is_archiving()) return;
    keep_spare(); /* before a command takes its place */
    thaw();
}

/* Archives and listings change nothing: they have no fence. */
static int is_one_file(const struct transfer *transfer) {
    return !strcmp(transfer->verb, "get") || !strcmp(transfer->verb, "put");
}

void start_transfer(const char *key, int fenced) {
    for (struct transfer *t = transfers; t; t = t->next)
        if (!strcmp(t->key, key)) return;
    struct transfer *transfer = calloc(1, sizeof *transfer);
    if (!transfer) return;
    strcpy(transfer->key, key);
    transfer->dir = open_entry("f", key);
    int known = transfer->dir < 0 || faccessat(transfer->dir, "done", F_OK, 0) == 0 || read_verb(transfer);
    if (!known && fenced && is_one_file(transfer)) {
        close(transfer->dir);
        free(transfer);
        return;
    }
    int processes = !known && transfer->freezes ? freeze() : 0;
    transfer->child = known ? -1 : fork_transfer();
    if (transfer->child == 0) become_transfer(transfer, processes);
    if (transfer->child < 0) {
        if (!known) publish_once(transfer->dir, "done", "interrupted 0\n");
        if (transfer->dir >= 0) close(transfer->dir);
        archive_ended(transfer);
        free(transfer);
        return;
    }
    add_helper(transfer->child);
    transfer->next = transfers;
    transfers = transfer;
}

static void publish_answer(struct transfer *transfer, int status) {
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) linkat(transfer->dir, ".done", transfer->dir, "done", 0);
    else publish_once(transfer->dir, "done", WIFSIGNALED(status) ? "interrupted 0\n" : "unavailable 0\n");
}

/* Whether `child` was a transfer. One that was killed from inside has no answer: the host asks again. Nor has one
 * that found no descriptors or no disk to answer with, which are the host's. */
int end_transfer(pid_t child, int status) {
    if (child == spare) spare = 0;
    for (struct transfer **at = &transfers; *at; at = &(*at)->next) {
        struct transfer *transfer = *at;
        if (transfer->child != child) continue;
        *at = transfer->next;
        archive_ended(transfer); /* first: who hears of the answer finds the commands running */
        publish_answer(transfer, status);
        close(transfer->dir);
        free(transfer);
        return 1;
    }
    return 0;
}

int is_transfer(pid_t pid) {
    for (struct transfer *t = transfers; t; t = t->next)
        if (t->child == pid) return 1;
    return 0;
}

/* A command has stopped it: it goes on, and the commands stand still meanwhile. */
void steady_transfer(pid_t pid) {
    for (struct transfer *t = transfers; t; t = t->next)
        if (t->child == pid && !t->freezes) {
            t->freezes = 1;
            freeze();
        }
    kill(pid, SIGCONT);
}

/* Ends an archive whose time is over; returns when to look again, 0 without one. */
ms attend_archive(void) {
    ms next = 0;
    for (struct transfer *t = transfers; t; t = t->next) {
        if (t->deadline && now() >= t->deadline) {
            kill(t->child, t->told ? SIGKILL : SIGTERM); /* told first: it puts back what it changed */
            t->told = 1;
            t->deadline = now() + STOP_MS;
        }
        if (t->deadline && (!next || t->deadline < next)) next = t->deadline;
    }
    return next;
}
