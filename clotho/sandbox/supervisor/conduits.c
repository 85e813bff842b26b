/* FIFOs of the control directory: what is read and written ahead waits here, so that no round trip slows it down. */
#include "conduits.h"

#include "control.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MOST_PENDING = 64 };

struct piece {
    uint64_t number;
    size_t size, done;
    unsigned char *content; /* NULL: it is to be read */
};
struct conduit {
    uint64_t number;
    int fd, writing;
    size_t count;
    struct piece pending[MOST_PENDING];
};
static struct conduit conduits[MOST_CONDUITS];

static struct conduit *find_conduit(uint64_t number) {
    for (int i = 0; i < MOST_CONDUITS; i++)
        if (conduits[i].fd > 0 && conduits[i].number == number) return &conduits[i];
    return NULL;
}

void open_conduit(struct request *request) {
    char path[MOST_PATH];
    struct stat s;
    int writing = take_number(request, 1) != 0, i = 0;
    take_entry(request, path);
    while (i < MOST_CONDUITS && conduits[i].fd > 0) i++;
    if (request->damaged || i == MOST_CONDUITS) {
        reply(request->number, request->damaged ? EINVAL : EMFILE, NULL, 0);
        return;
    }
    int fd = openat(control, path, (writing ? O_WRONLY : O_RDONLY) | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd >= 0 && (fstat(fd, &s) || !S_ISFIFO(s.st_mode))) {
        close(fd);
        fd = -1;
        errno = EINVAL;
    }
    if (fd >= 0) {
        fcntl(fd, F_SETPIPE_SZ, MOST_DATA);
        conduits[i] = (struct conduit){.number = request->number, .fd = fd, .writing = writing};
    }
    reply_done(request->number, fd < 0);
}

static void end_piece(struct conduit *conduit, int status, const void *content, size_t size) {
    reply(conduit->pending[0].number, status, content, size);
    free(conduit->pending[0].content);
    memmove(conduit->pending, conduit->pending + 1, --conduit->count * sizeof *conduit->pending);
}

void close_conduit(struct request *request) {
    struct conduit *conduit = find_conduit(take_number(request, 8));
    while (conduit && conduit->count) end_piece(conduit, ECANCELED, NULL, 0);
    if (conduit) close(conduit->fd);
    if (conduit) conduit->fd = 0;
    reply(request->number, 0, NULL, 0);
}

static void pass_on(struct conduit *conduit) {
    static unsigned char content[MOST_DATA];
    while (conduit->count) {
        struct piece *piece = conduit->pending;
        if (conduit->writing) {
            ssize_t n = write(conduit->fd, piece->content + piece->done, piece->size - piece->done);
            if (n < 0 && errno == EAGAIN) return;
            if (n > 0) piece->done += n;
            if (n < 0 || piece->done == piece->size) end_piece(conduit, n < 0 ? errno : 0, NULL, 0);
        } else {
            ssize_t n = read(conduit->fd, content, piece->size);
            if (n < 0 && errno == EAGAIN) return;
            end_piece(conduit, n < 0 ? errno : 0, content, n < 0 ? 0 : n);
            if (n > 0) return; /* others have their turn */
        }
    }
}

void ask_conduit(struct request *request, int writing) {
    struct conduit *conduit = find_conduit(take_number(request, 8));
    size_t limit = writing ? (size_t)(request->end - request->at) : take_number(request, 4);
    if (request->damaged || !conduit || conduit->writing != writing || limit > MOST_DATA
        || conduit->count == MOST_PENDING) {
        reply(request->number, EBADF, NULL, 0);
        return;
    }
    struct piece piece = {.number = request->number, .size = limit};
    if (writing) {
        if (!(piece.content = malloc(limit + 1))) _exit(1);
        memcpy(piece.content, request->at, limit);
    }
    conduit->pending[conduit->count++] = piece;
    if (writing && conduit->count == 1) pass_on(conduit);
}

/* Returns how many of them wait for the other side. */
int choose_conduits(struct pollfd polled[MOST_CONDUITS]) {
    int n = 0;
    for (struct conduit *each = conduits; each < conduits + MOST_CONDUITS; each++)
        if (each->fd > 0 && each->count)
            polled[n++] = (struct pollfd){.fd = each->fd, .events = each->writing ? POLLOUT : POLLIN};
    return n;
}

void serve_conduit(const struct pollfd *polled) {
    for (struct conduit *each = conduits; each < conduits + MOST_CONDUITS; each++)
        if (polled->revents && each->fd == polled->fd) pass_on(each);
}
