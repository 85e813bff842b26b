/* The relay: a control directory's way to a worker elsewhere, which has nothing of this machine but a stream to it.
 *
 *   supervisor relay
 *
 * Requests come at standard input, and answers go to standard output, after the line MAGIC. A frame is its length (four
 * bytes, of what follows), a number that the worker draws (eight), one byte, and what belongs to it; numbers have their
 * highest byte first. In a request the byte is a verb, in an answer an errno, 0 for success. Requests are obeyed in
 * their order, at once; three are answered later, when what they wait for has come: V, P's D and U.
 *
 *   H TOKEN             take over the control directory; nothing else is obeyed before
 *   M F W R L X G N S T C Y A Z O I      files: see relay_files.c
 *   V COUNT PATH...     wait until one of the first COUNT entries is there, or no supervisor lives; the answer is the
 *                       instance that lives, and what the others hold: after its length, or FAILED and an errno
 *   K NUMBER            answer the wait of that number now
 *   P WRITING PATH      open a FIFO; its number is that of the request
 *   D NUMBER LIMIT      read from it; empty at its end
 *   U NUMBER CONTENT    write to it
 *   Q NUMBER            close it
 *
 * Whatever breaks these rules ends it, and so does the end of its input. The supervisor and its jobs go on: a worker
 * comes back through another relay. */
#include "relay.h"

#include "conduits.h"
#include "control.h"
#include "frames.h"
#include "handover.h"
#include "relay_files.h"
#include "waits.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAGIC "clotho-relay 1\n"
enum { LOOK_MS = 1000, BLIND_MS = 20 };

static int events = -1;

static void begin(struct request *request) {
    char token[TOKEN_LENGTH], version[64];
    if (request->end - request->at != TOKEN_LENGTH) _exit(1);
    memcpy(token, request->at, TOKEN_LENGTH);
    control = take_over(token);
    if (control < 0) {
        reply(request->number, errno ? errno : EIO, NULL, 0);
        return;
    }
    events = open_waits();
    reply(request->number, 0, version, is_alive(version));
}

static void obey(const unsigned char *frame, size_t size) {
    struct request request = {.at = frame, .end = frame + size};
    request.number = take_number(&request, 8);
    int verb = (int)take_number(&request, 1);
    if (request.damaged) _exit(1);
    if (verb == 'H' && control < 0) begin(&request);
    else if (control < 0) _exit(1);
    else if (verb == 'V') begin_wait(&request);
    else if (verb == 'K') end_wait(take_number(&request, 8));
    else if (verb == 'P') open_conduit(&request);
    else if (verb == 'D' || verb == 'U') ask_conduit(&request, verb == 'U');
    else if (verb == 'Q') close_conduit(&request);
    else if (!serve_file(verb, &request)) _exit(1);
}

static void read_requests_of_worker(void) {
    static unsigned char text[4 + MOST_FRAME];
    static size_t have;
    ssize_t n = read(0, text + have, sizeof text - have);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (n <= 0) _exit(0);
    have += n;
    unsigned char *rest = text;
    while (text + have - rest >= 4) {
        size_t length = (size_t)rest[0] << 24 | rest[1] << 16 | rest[2] << 8 | rest[3];
        if (length < FRAME_HEAD - 4 || length > MOST_FRAME) _exit(1);
        if ((size_t)(text + have - rest) < 4 + length) break;
        obey(rest + 4, length);
        rest += 4 + length;
    }
    have = text + have - rest;
    memmove(text, rest, have);
}

int relay(void) {
    struct pollfd polled[2 + MOST_CONDUITS];
    control = -1;
    prctl(PR_SET_DUMPABLE, 0);
    signal(SIGPIPE, SIG_IGN);
    umask(0);
    write_all(MAGIC, sizeof MAGIC - 1);
    for (;;) {
        polled[0] = (struct pollfd){.fd = 0, .events = POLLIN};
        polled[1] = (struct pollfd){.fd = events, .events = POLLIN};
        int n = choose_conduits(polled + 2);
        poll(polled, 2 + n, !is_waited() ? -1 : events < 0 ? BLIND_MS : LOOK_MS);
        for (int i = 0; i < n; i++) serve_conduit(&polled[2 + i]);
        answer_waits();
        if (polled[0].revents) read_requests_of_worker();
    }
}
