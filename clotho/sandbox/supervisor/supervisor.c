/* The supervisor: starts, follows and ends the commands of one sandbox. Where it can be, it is the sandbox's PID 1.
 *
 *   supervisor [for USER] serve CONTROL READY LEASE_SECONDS MAX_PROCESSES MAX_FILE_BYTES
 *   supervisor enter USER SUPERVISOR NICENESS GROUP... -- COMMAND...
 *   supervisor contain CONTROL_PATH USER LEASE_SECONDS MAX_PROCESSES MAX_FILE_BYTES
 *   supervisor host CONTROL_PATH USER LEASE_SECONDS MAX_PROCESSES MAX_FILE_BYTES
 *   supervisor begin CONTROL_PATH USER LEASE_SECONDS MAX_PROCESSES MAX_FILE_BYTES DIRECTORY VARIABLE...
 *   supervisor relay
 *   supervisor port NUMBER MOST_BYTES
 *
 * (`enter` prepares a process of the host for `serve`: see enter.c. `contain` is `serve` in a container: see contain.c.
 * `host` is `contain`, and `begin` is `serve` beside other processes, for a worker elsewhere: see relay.c.
 * `port` is a command in the sandbox: see port.c.)
 * CONTROL is an inherited descriptor of the control directory; READY one that its instance id is written to.
 *
 * As PID 1 of a pid namespace it can't be killed or stopped from inside, and the kernel ends the whole sandbox when
 * it exits. The control directory is reached only through the descriptor and is mounted nowhere, and this process
 * isn't dumpable: commands can neither read what is staged nor forge a result. Where the host could give it a user of
 * its own, commands run as USER, who owns nothing there either, and can't signal what is ours. Nobody above it has to
 * live: when its lease runs out it exits, and the sandbox with it.
 *
 * The control directory:
 *   alive              instance id, locked with flock(2) as long as this process lives
 *   q                  FIFO of requests, one a line
 *   c/KEY/             a job. The host stages `job` (header, empty line, command) and `stdin` with one rename, and
 *                      in.REQUEST later; here are written: started, out, pid, cwd, state, taken.REQUEST, done
 *   f/KEY/             a file transfer. The host stages `request` and `content`; here are written: content, done.
 *                      For an archive it stages a FIFO, `stream`
 *   filter, ready      of a container: the filter of system calls that the host staged, and our instance id once we serve
 *   sealed             no command runs any more, and none will
 *   frozen             all commands are stopped, for the host
 *   fence              a number: starts, inputs, kills and files that are asked for under a lower one have no effect
 * `started` is the exactly-once point. `done` is "STATE CODE SIZE", STATE one of exited, timeout, output_limit, killed.
 * A host that finds `started`, no `done`, and another instance (or none) in `alive`, says lost. */
#include "command.h"
#include "confine.h"
#include "contain.h"
#include "enter.h"
#include "execution.h"
#include "freeze.h"
#include "handover.h"
#include "input.h"
#include "manifest.h"
#include "measure.h"
#include "output.h"
#include "port.h"
#include "relay.h"
#include "relay_files.h"
#include "requests.h"
#include "transfer.h"
#include "tree.h"
#include "user.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ORPHAN_CHECK_MS = 20, MAX_WAIT_MS = 60000, MAX_DEAD = 1024, MAX_POLLED = 1024, LOCK_TRIES = 500 };
enum { FEWEST_FILES = 256, COMMAND_FILES = 1024 };
enum { REQUESTS, CHILDREN, REPORTS, CHANGES, HANDOVERS, FIXED };

static struct pollfd polled[MAX_POLLED];
static int handovers = -1; /* where relays ask for the control directory */
static struct job *polled_jobs[MAX_POLLED];

/* ---- what has happened ---- */

static void hear_keepers(void) {
    struct news news;
    while (read(polled[REPORTS].fd, &news, sizeof news) == sizeof news)
        for (struct job *job = jobs; job; job = job->next) {
            if (job->keeper != news.keeper) continue;
            if (news.unstarted && !job->verdict) {
                take_back(job);
                continue;
            }
            if (job->command == 0 && job->background) {
                char pid[16];
                snprintf(pid, sizeof pid, "%d\n", news.command);
                publish_once(job->dir, "pid", pid);
            }
            job->command = news.command;
            if (news.ended) command_ended(job, news.status);
        }
}

/* Commands may stop what is ours, but for this process itself: it goes on at once. */
static void go_on_child(pid_t child) {
    if (is_transfer(child)) steady_transfer(child);
    for (struct job *job = jobs; job; job = job->next)
        if (job->keeper == child) kill(child, SIGCONT);
}

/* Reaps before hearing the keepers: one that has been reaped has no news on the way any more.
 * A command whose keeper was murdered is our own child: its status counts before its keeper's. */
static int reap(void) {
    static struct { pid_t pid; int status; } dead[MAX_DEAD];
    struct signalfd_siginfo infos[4];
    int n = 0, looks = 0;
    ssize_t size = read(polled[CHILDREN].fd, infos, sizeof infos);
    for (ssize_t i = 0; i < size / (ssize_t)sizeof *infos; i++)
        if (infos[i].ssi_signo == SIGTERM) leaving = 1;
    while (looks < MAX_DEAD && (dead[n].pid = waitpid(-1, &dead[n].status, WNOHANG | WUNTRACED)) > 0) {
        looks++;
        if (WIFSTOPPED(dead[n].status)) go_on_child(dead[n].pid);
        else forget_helper(dead[n++].pid);
    }
    hear_keepers();
    for (int i = 0; i < n; i++) {
        if (end_transfer(dead[i].pid, dead[i].status)) continue;
        for (struct job *job = jobs; job; job = job->next) {
            if (job->command == dead[i].pid) command_ended(job, dead[i].status);
            if (job->keeper == dead[i].pid) job->keeper_gone = 1;
        }
    }
    for (int i = 0; i < n; i++)
        for (struct job *job = jobs; job; job = job->next)
            if (job->keeper == dead[i].pid && job->command <= 0) command_ended(job, dead[i].status);
    return looks == MAX_DEAD;
}

static void earlier(ms *next, ms time) {
    if (time && time < *next) *next = time;
}

/* Does what is due for `job`; returns when to look at it again. */
static ms attend(struct job *job) {
    ms next = lease_until;
    if (exceeds_output(job)) end_job(job, "output_limit");
    if (job->watch <= 0) earlier(&next, job->look_at);
    if (job->finished || (is_frozen() && !sealing)) return next;
    if (job->drain_until && now() >= job->drain_until) finish_job(job);
    if (job->deadline && now() >= job->deadline) end_job(job, "timeout");
    if (job->kill_at && now() >= job->kill_at) end_job(job, job->verdict);
    if (job->keeper_gone && !job->finished) {
        /* Its keeper may have been killed between reaping it and telling us: then nobody knows how it ended. */
        if (job->command > 0 && kill(job->command, 0)) {
            job->verdict = "killed";
            finish_job(job);
        }
        earlier(&next, now() + ORPHAN_CHECK_MS);
    }
    earlier(&next, job->drain_until);
    earlier(&next, job->deadline);
    earlier(&next, job->kill_at);
    return next;
}

static void seal(void) {
    static int sealed; /* from then on nothing is started that could be left */
    if (sealed) return;
    for (struct job *job = jobs; job; job = job->next)
        if (!job->verdict) job->verdict = "killed";
    kill_everything();
    if (jobs) return;
    publish_once(control, "sealed", "");
    sealed = faccessat(control, "sealed", F_OK, 0) == 0;
}

static nfds_t choose_polled(void) {
    nfds_t n = FIXED;
    for (struct job *job = jobs; job && n < MAX_POLLED; job = job->next) {
        if (job->writer < 0 || (!job->pty && !job->inputs)) continue;
        polled[n].fd = job->writer;
        polled[n].events = (job->pty ? POLLIN : 0) | (job->inputs ? POLLOUT : 0);
        polled_jobs[n++] = job;
    }
    return n;
}

static void serve(void) {
    int more = 0;
    while (!leaving && now() < lease_until) {
        ms next = lease_until;
        forget_jobs_without_keeper();
        for (struct job *job = jobs; job; job = job->next) earlier(&next, attend(job));
        earlier(&next, attend_archive());
        if (sealing && jobs) earlier(&next, now() + ORPHAN_CHECK_MS);
        if (sealing) seal();
        else keep_spare();
        nfds_t n = choose_polled();
        ms wait = next - now();
        poll(polled, n, wait < 0 || more ? 0 : wait > MAX_WAIT_MS ? MAX_WAIT_MS : (int)wait);
        more = reap();
        if (polled[CHANGES].revents) output_changed();
        if (polled[HANDOVERS].revents) hand_over(polled[HANDOVERS].fd);
        for (nfds_t i = FIXED; i < n; i++) {
            if (polled[i].revents & POLLOUT) feed_input(polled_jobs[i]);
            if (polled_jobs[i]->pty && polled[i].revents & ~POLLOUT) read_terminal(polled_jobs[i]);
        }
        read_requests(polled[REQUESTS].fd);
    }
}

/* ---- beginning ---- */

/* A host that asks whether we live holds the lock for a moment. */
static int lock_alive(void) {
    char text[20];
    unsigned long long id;
    int alive = openat(control, "alive", O_RDWR | O_CREAT | O_CLOEXEC, 0600), tries = 0;
    if (alive < 0 || getrandom(&id, sizeof id, 0) != sizeof id) return -1;
    while (flock(alive, LOCK_EX | LOCK_NB))
        if (errno != EWOULDBLOCK || ++tries == LOCK_TRIES || usleep(1000)) return -1;
    snprintf(text, sizeof text, "%016llx\n", id);
    strcpy(instance, text);
    return ftruncate(alive, 0) || pwrite(alive, text, strlen(text), 0) < 0 ? -1 : 0;
}

static int open_events(void) {
    sigset_t signals;
    int ends[2];
    sigemptyset(&signals);
    sigaddset(&signals, SIGCHLD);
    /* As PID 1 we hear no other signal: commands can send any, and make it look as if it came from outside. */
    if (getpid() != 1) sigaddset(&signals, SIGTERM);
    sigprocmask(SIG_BLOCK, &signals, NULL);
    signal(SIGPIPE, SIG_IGN);
    if (pipe2(ends, O_CLOEXEC | O_NONBLOCK)) return -1;
    report = ends[1];
    mkfifoat(control, "q", 0600);
    polled[REQUESTS].fd = openat(control, "q", O_RDWR | O_NONBLOCK | O_CLOEXEC); /* also a writer: never at its end */
    polled[CHILDREN].fd = signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
    polled[REPORTS].fd = ends[0];
    polled[CHANGES].fd = open_output_watch();
    polled[HANDOVERS].fd = handovers;
    for (int i = 0; i < FIXED; i++) polled[i].events = POLLIN;
    return polled[REQUESTS].fd < 0 || polled[CHILDREN].fd < 0 ? -1 : 0;
}

/* Ours is as many as we may have, whatever the worker had left itself; commands get what is usual at least. */
static int take_descriptors(void) {
    struct rlimit ours;
    if (getrlimit(RLIMIT_NOFILE, &ours)) return -1;
    command_files = ours;
    rlim_t usual = ours.rlim_max < COMMAND_FILES ? ours.rlim_max : COMMAND_FILES;
    if (command_files.rlim_cur < usual) command_files.rlim_cur = usual;
    ours.rlim_cur = ours.rlim_max;
    if (ours.rlim_max >= FEWEST_FILES) return setrlimit(RLIMIT_NOFILE, &ours);
    dprintf(2, "%llu open files are allowed, and %d are needed\n", (unsigned long long)ours.rlim_max, FEWEST_FILES);
    return -1;
}

static int serve_command(char **arguments) {
    if (take_descriptors()) return 3;
    control = fcntl(atoi(arguments[0]), F_DUPFD_CLOEXEC, 20);
    int ready = fcntl(atoi(arguments[1]), F_DUPFD_CLOEXEC, 20);
    close(atoi(arguments[0]));
    close(atoi(arguments[1]));
    lease_until = now() + 1000 * atoll(arguments[2]);
    max_processes = atoll(arguments[3]);
    max_file = atoll(arguments[4]);
    prctl(PR_SET_DUMPABLE, 0);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    umask(0); /* every file is given its mode */
    if (command_user && !in_container && (keep_rights() || confine_writes(control))) return 3;
    if (lock_alive() || open_events()) return 3;
    open_manifest_memory();
    note_outside();
    /* Whoever started us may be dead by now: the next host to ask finds us by our lock. */
    (void)!write(ready, instance, strlen(instance));
    close(ready);
    serve();
    kill_everything();
    return 0;
}

/* Goes on beside other processes when this one has ended; the instance id comes at standard output. */
static int begin_command(char **arguments, char **variables) {
    static char directory[12];
    long long user = user_of(arguments[1]);
    if (user < 0 || user >= UINT_MAX || make_entries(arguments[0], geteuid(), (gid_t)user)) return 3;
    if ((handovers = open_handovers()) < 0) return 3;
    if ((uid_t)user != geteuid()) command_user = (uid_t)user;
    if (command_user && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)) return 3;
    signal(SIGHUP, SIG_IGN); /* from a terminal that closes when its session's first process, this one, ends */
    pid_t child = fork();
    if (child) return child < 0 ? 3 : 0;
    setsid();
    signal(SIGHUP, SIG_DFL);
    clearenv();
    for (char **each = variables; *each; each++) putenv(*each);
    snprintf(directory, sizeof directory, "%d", open(arguments[0], O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    int ready = dup(1), null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (ready < 0 || null < 0 || make_path(arguments[5]) || chdir(arguments[5])) return 3;
    for (int fd = 0; fd < 3; fd++) dup2(null, fd);
    static char told[12];
    snprintf(told, sizeof told, "%d", ready);
    arguments[0] = directory;
    arguments[1] = told;
    return serve_command(arguments);
}

int main(int argc, char **argv) {
    if (argc >= 5 && !strcmp(argv[1], "within")) {
        if (begin_within(argv + 2)) return 3;
        argv += 3;
        argc -= 3;
    }
    if (argc >= 3 && !strcmp(argv[1], "for")) {
        command_user = (uid_t)natural(argv[2]);
        argv += 2;
        argc -= 2;
    }
    if (argc == 7 && !strcmp(argv[1], "serve")) return serve_command(argv + 2);
    if (argc >= 7 && !strcmp(argv[1], "enter")) return enter_command(argv + 2);
    if (argc == 7 && !strcmp(argv[1], "contain")) return contain(argv + 2, 0) ? 3 : serve_command(argv + 2);
    if (argc == 7 && !strcmp(argv[1], "host")) {
        handovers = open_handovers();
        return handovers < 0 || contain(argv + 2, 1) ? 3 : serve_command(argv + 2);
    }
    if (argc >= 8 && !strcmp(argv[1], "begin")) return begin_command(argv + 2, argv + 8);
    if (argc == 2 && !strcmp(argv[1], "relay")) return relay();
    if (argc == 4 && !strcmp(argv[1], "port")) return serve_port((int)natural(argv[2]), natural(argv[3]));
    return 2;
}
