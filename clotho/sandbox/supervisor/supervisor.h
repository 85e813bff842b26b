/* What the parts of the supervisor share. See supervisor.c for what it is. */
#ifndef SUPERVISOR_H
#define SUPERVISOR_H

#include <limits.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/types.h>

enum { KEY_LENGTH = 32 };
typedef long long ms;
#define MOST 1000000000000000LL /* bytes, or milliseconds */

/* ---- control.c: the control directory ---- */

struct header {
    char text[8192];
    size_t length;
};

extern int control;
extern char instance[20];

ms now(void);
int is_key(const char *text);
int open_entry(const char *kind, const char *key);
int publish_once(int dir, const char *name, const char *text);
int replace_file(int dir, const char *name, const char *text, size_t length);
int read_header(int dir, const char *name, struct header *header);
int header_value(const struct header *header, const char *name, char *value, size_t size);
long long natural(const char *text);
long long header_number(const struct header *header, const char *name, long long otherwise);
void directory_left_by(const char *key, char *path);
void close_from(int first);

/* ---- job.c: one command from start to result ---- */

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

struct news { /* from a keeper; smaller than PIPE_BUF, so each arrives whole */
    pid_t keeper, command;
    int status, ended;
    int unstarted; /* an errno: no shell ever ran */
};

extern struct job *jobs;
extern long long max_processes, max_file; /* bounds of every command; 0: none */
extern struct rlimit command_files;

struct job *find_job(const char *key);
void start_job(const char *key, int report);
void end_job(struct job *job, const char *verdict);
void command_ended(struct job *job, int status);
void take_back(struct job *job);
void finish_job(struct job *job);
void never_start(const char *key);
void forget_jobs_without_keeper(void);

/* ---- command.c: becoming the command ---- */

void become_keeper(struct job *job, int standard_input, int report);

/* ---- output.c: the cap on a job's output ---- */

int open_output_watch(void);
void look_at_output(struct job *job);
void output_changed(void);
void forget_output(struct job *job);

/* ---- input.c: what is written to a job while it runs ---- */

int open_input(struct job *job, const char *kind);
void accept_input(struct job *job, const char *request);
void feed_input(struct job *job);
void read_terminal(struct job *job);

/* ---- tree.c: process trees ---- */

int signal_tree(pid_t root, int signal);
int stop_running(int by_level, void (*found)(pid_t), int *processes);
void kill_tree(struct job *job);
void kill_everything(void);

/* ---- freeze.c: stopping all commands for a while ---- */

int is_frozen(void);
int freeze_for_archive(void);
void archive_ended(void);
void obey_later(const char *line);

/* ---- transfer.c: children that read or write files for the host, in the sandbox's view and with its rights ---- */

enum { CONTENT = 3, RESULT = 4, ENTRY = 5 }; /* their descriptors; ENTRY is the request's directory */

void start_transfer(const char *key);
int end_transfer(pid_t child, int status);
int is_transfer(pid_t pid);
void steady_transfer(pid_t pid);
int is_archiving(void);
ms attend_archive(void);
void answer(const char *word, long long size) __attribute__((noreturn));
void answer_errno(void) __attribute__((noreturn));

/* ---- file.c: one file ---- */

void get(const struct header *header, const char *path, long long max) __attribute__((noreturn));
void put(const struct header *header, char *path, const char *key) __attribute__((noreturn));

/* ---- enter.c: becoming a sandbox's process ---- */

int enter_command(char **arguments);

/* ---- supervisor.c ---- */

void obey(char *line);

#endif
