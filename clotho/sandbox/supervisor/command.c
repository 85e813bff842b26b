/* Between fork and exec: the keeper of a job, and its command. */
#include "command.h"

#include "user.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* Run in the command's own shell. Descriptors: 6 the variables it inherits, 7 its text, 8 and 9 where its state goes.
 * - One line, so that the shell's messages name the line numbers of the command's own text.
 * - The text is read, not sourced: it shows up neither in ps nor as a file name in messages.
 * - State is saved after the command as well as in the EXIT trap: a command with a trap of its own keeps its state.
 * - The redirection around eval closes 8 and 9 for whatever the command starts: the shell's saved copies are
 *   close-on-exec. Should the command overwrite one of those, -ef sees it, and nothing is written to a file of its own.
 * - bash puts those copies at the first free descriptor from 10 on, and a command's own `exec 10>file` would fail
 *   silently there: so 10 to 39 are taken until the copies are made. (sh only knows descriptors of one digit.) */
#define BEFORE \
    "__save() { if [ -z \"${__saved-}\" ] && [ /proc/self/fd/8 -ef /proc/self/fd/9 ]; then __saved=1; " \
    "{ command export -p; command printf '\\0%s' \"$PWD\"; } >&9; fi; }; " \
    "__end() { __rc=$?; trap - EXIT; __save; command exit $__rc; }; "
#define AFTER_READING(CLOSE_SPARE) \
    "; exec 7<&-; __pwd=$PWD; . /proc/self/fd/6 2>/dev/null; PWD=$__pwd; unset __pwd; exec 6<&-; " \
    "trap '{ __end; } 2>/dev/null' EXIT; " \
    "{ " CLOSE_SPARE "eval \"unset __text; $__text\"; } 8>&- 9>&-; " \
    "{ __rc=$?; set +x; __save; } 2>/dev/null; command exit $__rc"
#define TEN(D) D "0<&- " D "1<&- " D "2<&- " D "3<&- " D "4<&- " D "5<&- " D "6<&- " D "7<&- " D "8<&- " D "9<&- "

enum { FIRST_SPARE = 10, LAST_SPARE = 39, TELL = 40, ABOVE = 100 };
static const char BASH_SCRIPT[] =
    BEFORE "IFS= read -r -d '' __text <&7" AFTER_READING("exec " TEN("1") TEN("2") TEN("3") "; ");
static const char SH_SCRIPT[] = BEFORE "__text=$(cat <&7)" AFTER_READING("");

enum { CANNOT_ENTER = 126, NO_SHELL = 127 };

long long max_processes, max_file;
struct rlimit command_files;

static void enter_directory(const struct job *job, const char *left) {
    char here[PATH_MAX];
    if (*left && chdir(left) == 0) setenv("PWD", left, 1);
    else if (getcwd(here, sizeof here)) {
        setenv("PWD", here, 1);
        if (*left && !*job->workdir && !job->silent) dprintf(1, "[%s no longer exists; now in %s]\n", left, here);
    }
    if (!*job->workdir) return;
    if (chdir(job->workdir)) {
        dprintf(2, "cd: %s: %s\n", job->workdir, strerror(errno));
        _exit(CANNOT_ENTER);
    }
    if (*job->workdir == '/') setenv("PWD", job->workdir, 1);
    else if (getcwd(here, sizeof here)) setenv("PWD", here, 1);
}

static void limit(int resource, long long value) {
    struct rlimit l = {value, value};
    setrlimit(resource, &l);
}

static void not_started(int tell) {
    int why = errno;
    (void)!write(tell, &why, sizeof why);
    _exit(CANNOT_ENTER);
}

/* `tell` is closed by exec: what is written there says that there was none. */
static void become_command(struct job *job, int standard_input, int tell) {
    int output = job->pty ? standard_input : job->out;
    setsid();
    if (job->pty) ioctl(standard_input, TIOCSCTTY, 0);
    int from[] = {standard_input, output, output, job->inherited, job->text, job->state, job->state, tell};
    int to[] = {0, 1, 2, 6, 7, 8, 9, TELL};
    for (int i = 0; i < 8; i++) /* a target may be in use as a source */
        if ((from[i] = fcntl(from[i], F_DUPFD_CLOEXEC, ABOVE)) < 0) not_started(tell);
    tell = from[7];
    for (int i = 0; i < 8; i++)
        if (dup3(from[i], to[i], to[i] == TELL ? O_CLOEXEC : 0) < 0) not_started(tell);
    umask(022);
    char left[PATH_MAX];
    directory_left_by(job->key, left); /* ours by now: linked from the predecessor's at the start */
    int oom = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
    if (oom >= 0 && write(oom, "500", 3) == 3) close(oom); /* short of memory, the command goes, not its supervisor */
    if (become_command_user()) not_started(tell);
    enter_directory(job, left);
    for (int fd = 3; fd < 6; fd++) close(fd);
    close_from(TELL + 1);
    limit(RLIMIT_CORE, 0);
    if (max_file > 0) limit(RLIMIT_FSIZE, max_file);
    if (max_processes > 0) limit(RLIMIT_NPROC, max_processes);
    setrlimit(RLIMIT_NOFILE, &command_files);
    for (int each = 1; each < NSIG; each++) signal(each, SIG_DFL); /* what a script starts with & ignores SIGINT */
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    int null = open("/dev/null", O_RDONLY);
    for (int fd = FIRST_SPARE; fd <= LAST_SPARE; fd++) dup2(null, fd);
    close(null);
    execlp("bash", "bash", "-c", BASH_SCRIPT, "bash", NULL);
    if (errno != ENOENT && errno != EACCES) not_started(TELL);
    close_from(FIRST_SPARE);
    execlp("sh", "sh", "-c", SH_SCRIPT, "sh", NULL);
    _exit(NO_SHELL);
}

/* Adopts whatever the command leaves behind, reports the command's end, and exits after the last of them. */
void become_keeper(struct job *job, int standard_input, int report) {
    int started[2], why = 0;
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    pid_t command = pipe2(started, O_CLOEXEC) ? -1 : fork();
    if (command == 0) become_command(job, standard_input, started[1]);
    if (command < 0) why = errno;
    else close(started[1]);
    /* Its end by exec, or in death, is the end of what can be read. */
    if (command > 0 && read(started[0], &why, sizeof why) != sizeof why) why = 0;
    struct news news = {getpid(), command, command < 0 ? 254 << 8 : 0, command < 0, why == EAGAIN ? 0 : why};
    if (write(report, &news, sizeof news) < 0) _exit(1);
    dup2(report, 0);
    close_from(1);
    for (int status; command > 0;) {
        pid_t pid = wait(&status);
        if (pid < 0 && errno == ECHILD) break;
        if (pid != command) continue;
        news.status = status;
        news.ended = 1;
        if (write(0, &news, sizeof news) < 0) _exit(1);
    }
    _exit(0);
}
