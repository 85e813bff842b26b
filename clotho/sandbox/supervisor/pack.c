/* Writing an archive of the sandbox's folders to a FIFO, while the commands are stopped.
 *
 * Where the fingerprint is what the host saw last time, nothing has changed and nothing is written.
 * The sandbox's own user is written as 0: the next sandbox has another one. */
#include "pack.h"

#include "answer.h"
#include "bytes.h"
#include "measure.h"
#include "tar.h"
#include "user.h"
#include "walk.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BUFFER = 1 << 18, COPY = 1 << 16 };

static int out;
static char buffer[BUFFER];
static size_t filled;

static int flush(void) {
    for (size_t done = 0; done < filled;) {
        if (told_to_stop) return -1;
        ssize_t n = write(out, buffer + done, filled - done);
        if (n < 0 && errno != EINTR) return -1;
        if (n > 0) done += n;
    }
    filled = 0;
    return 0;
}

static int emit(const void *bytes, size_t length) {
    const char *from = bytes;
    while (length) {
        if (filled == BUFFER && flush()) return -1;
        size_t part = length < BUFFER - filled ? length : BUFFER - filled;
        memcpy(buffer + filled, from, part);
        filled += part;
        from += part;
        length -= part;
    }
    return 0;
}

static int pad(long long written) {
    static const char zeros[BLOCK];
    return emit(zeros, (BLOCK - written % BLOCK) % BLOCK);
}

static char *records;
static size_t recorded, records_room;

/* "LENGTH NAME=VALUE\n", where LENGTH counts itself. */
static void record(const char *name, const char *value) {
    size_t rest = strlen(name) + strlen(value) + 3, length = rest + 1;
    char digits[24];
    while ((size_t)snprintf(digits, sizeof digits, "%zu", length) + rest != length) length++;
    records = grown(records, &records_room, recorded + length + 1, 1);
    recorded += sprintf(records + recorded, "%s %s=%s\n", digits, name, value);
}

static void record_number(const char *name, long long value) {
    char text[24];
    snprintf(text, sizeof text, "%lld", value);
    record(name, text);
}

static unsigned own(unsigned id, unsigned ours) { return id == ours ? 0 : id & 07777777; }

static int emit_header(const struct node *node, char type, long long length, const char *link) {
    const struct stat *s = &node->stat;
    struct tar_header header = {.type = 'x', .magic = "ustar", .version = {'0', '0'}};
    char time[48];
    snprintf(time, sizeof time, "%lld.%09ld", (long long)s->st_mtim.tv_sec, s->st_mtim.tv_nsec);
    record("path", node->path);
    record("mtime", time);
    if (link) record("linkpath", link);
    if (length >= 1LL << 33) record_number("size", length);
    snprintf(header.name, sizeof header.name, "pax");
    snprintf(header.mode, sizeof header.mode, "%07o", 0644);
    snprintf(header.size, sizeof header.size, "%011zo", recorded);
    fill_checksum(&header);
    size_t written = recorded;
    recorded = 0;
    if (emit(&header, BLOCK) || emit(records, written) || pad(written)) return -1;
    header.type = type;
    snprintf(header.name, sizeof header.name, "%s", node->path);
    snprintf(header.mode, sizeof header.mode, "%07o", s->st_mode & 07777);
    snprintf(header.uid, sizeof header.uid, "%07o", own(s->st_uid, geteuid()));
    snprintf(header.gid, sizeof header.gid, "%07o", own(s->st_gid, getegid()));
    snprintf(header.size, sizeof header.size, "%011llo", length < 1LL << 33 ? length : 0);
    snprintf(header.mtime, sizeof header.mtime, "%011llo", s->st_mtim.tv_sec < 0 ? 0 : (long long)s->st_mtim.tv_sec);
    if (link) snprintf(header.link, sizeof header.link, "%s", link);
    fill_checksum(&header);
    return emit(&header, BLOCK);
}

/* The parts of a file that hold something; one of size 0 at its end where it ends in a hole. */
static size_t segments_of(int fd, off_t end, struct segment **segments, size_t *room) {
    size_t count = 0;
    for (off_t at = 0; at < end;) {
        off_t start = lseek(fd, at, SEEK_DATA);
        if (start < 0 && errno != ENXIO) start = at; /* a file system that knows no holes */
        off_t stop = start < 0 ? end : lseek(fd, start, SEEK_HOLE);
        if (stop < 0 || stop > end) stop = end;
        if (start < 0 || start > end) start = end;
        *segments = grown(*segments, room, count + 1, sizeof **segments);
        (*segments)[count++] = (struct segment){start, stop - start};
        at = stop;
    }
    if (count && (*segments)[count - 1].size && (*segments)[count - 1].start + (*segments)[count - 1].size < end) {
        *segments = grown(*segments, room, count + 1, sizeof **segments);
        (*segments)[count++] = (struct segment){end, 0};
    }
    return count;
}

/* ESTALE where the file is shorter than it was. */
static int emit_data(int fd, const struct segment *segments, size_t count) {
    char bytes[COPY];
    for (size_t i = 0; i < count; i++)
        for (off_t done = 0; done < segments[i].size;) {
            off_t left = segments[i].size - done;
            ssize_t n = pread(fd, bytes, left < COPY ? left : COPY, segments[i].start + done);
            if (n == 0) errno = ESTALE;
            if (n <= 0 || emit(bytes, n)) return -1;
            done += n;
        }
    return 0;
}

static int emit_sparse(const struct node *node, int fd, const struct segment *segments, size_t count) {
    static char *map;
    static size_t room;
    long long data = 0;
    map = grown(map, &room, (count + 1) * 48 + BLOCK, 1);
    size_t length = sprintf(map, "%zu\n", count);
    for (size_t i = 0; i < count; i++) {
        length += sprintf(map + length, "%lld\n%lld\n", (long long)segments[i].start, (long long)segments[i].size);
        data += segments[i].size;
    }
    while (length % BLOCK) map[length++] = 0;
    record_number("GNU.sparse.major", 1);
    record_number("GNU.sparse.minor", 0);
    record("GNU.sparse.name", node->path);
    record_number("GNU.sparse.realsize", node->stat.st_size);
    if (emit_header(node, '0', length + data, NULL) || emit(map, length) || emit_data(fd, segments, count)) return -1;
    return pad(data);
}

static int pack_file(const struct node *node) {
    static struct segment *segments;
    static size_t room;
    struct segment whole = {0, node->stat.st_size};
    int fd = open_node(node);
    if (fd < 0) return -1;
    int failed, sparse = node->stat.st_blocks * (off_t)BLOCK < node->stat.st_size;
    size_t count = sparse ? segments_of(fd, node->stat.st_size, &segments, &room) : 1;
    if (sparse && (count != 1 || segments->start || segments->size != node->stat.st_size))
        failed = emit_sparse(node, fd, segments, count);
    else
        failed = emit_header(node, '0', node->stat.st_size, NULL) || emit_data(fd, &whole, 1) || pad(node->stat.st_size);
    int why = errno;
    close(fd);
    errno = why;
    return failed ? -1 : 0;
}

static int pack_link(const struct node *node) {
    char target[PATH_MAX];
    ssize_t n = readlinkat(node->dir, node->name, target, sizeof target - 1);
    if (n < 0) return -1;
    target[n] = 0;
    return emit_header(node, '2', 0, target);
}

/* ---- hard links ---- */

struct first {
    dev_t device;
    ino_t inode;
    char *path;
};
static struct first *firsts;
static size_t firsts_count, firsts_room;

/* The path under which this file was met first, NULL if that is now. */
static const char *first_path(const struct node *node) {
    if (firsts_count * 2 >= firsts_room) {
        struct first *old = firsts;
        size_t old_room = firsts_room;
        firsts_room = old_room ? old_room * 2 : 1024;
        if (!(firsts = calloc(firsts_room, sizeof *firsts))) _exit(1);
        for (size_t i = 0; i < old_room; i++) {
            if (!old[i].path) continue;
            size_t at = old[i].inode % firsts_room;
            while (firsts[at].path) at = (at + 1) % firsts_room;
            firsts[at] = old[i];
        }
        free(old);
    }
    size_t at = node->stat.st_ino % firsts_room;
    for (; firsts[at].path; at = (at + 1) % firsts_room)
        if (firsts[at].inode == node->stat.st_ino && firsts[at].device == node->stat.st_dev) return firsts[at].path;
    firsts[at] = (struct first){node->stat.st_dev, node->stat.st_ino, strdup(node->path)};
    firsts_count++;
    return NULL;
}

static int pack_node(const struct node *node) {
    mode_t mode = node->stat.st_mode;
    if (told_to_stop) return -1;
    if (S_ISDIR(mode)) return emit_header(node, '5', 0, NULL);
    const char *first = node->stat.st_nlink > 1 ? first_path(node) : NULL;
    if (first) return S_ISREG(mode) || S_ISLNK(mode) || S_ISFIFO(mode) ? emit_header(node, '1', 0, first) : 0;
    if (S_ISREG(mode)) return pack_file(node);
    if (S_ISLNK(mode)) return pack_link(node);
    if (S_ISFIFO(mode)) return emit_header(node, '6', 0, NULL);
    return 0; /* sockets and devices stay behind */
}

/* ---- both ---- */

static void walk_roots(const struct roots *roots, visitor *visit) {
    for (size_t i = 0; i < roots->count; i++)
        if (walk(roots->all[i].path, roots->all[i].label, visit)) {
            if (told_to_stop) answer("too_slow", measured.size);
            if (errno == ESTALE) answer("changed", 0);
            answer_errno();
        }
}

static void __attribute__((noreturn)) answer_packed(const char *word, const char *fingerprint, int processes) {
    int told = dprintf(RESULT, "%s %lld\n%s %d %lld %d", word, measured.size, fingerprint, processes, measured.left_out,
                       left_outside());
    outlast_grain();
    _exit(told < 0);
}

void pack(const struct header *request, int processes) {
    static const char end[2 * BLOCK];
    char fingerprint[2 * DIGEST + 1], known[2 * DIGEST + 1];
    struct roots roots;
    read_roots(request, &roots);
    out = openat(ENTRY, "stream", O_WRONLY | O_NONBLOCK | O_CLOEXEC); /* its end tells the host that there is an answer */
    if (out < 0 || fcntl(out, F_SETFL, 0) || become_archive_user()) answer_errno();
    sha256_begin(&measured.fingerprint);
    measured.size = sizeof end;
    walk_roots(&roots, measure);
    unsigned char digest[DIGEST];
    sha256_end(&measured.fingerprint, digest);
    hexadecimal(digest, sizeof digest, fingerprint);
    if (header_value(request, "known", known, sizeof known) && !strcmp(known, fingerprint))
        answer_packed("unchanged", fingerprint, processes);
    if (measured.size > header_number(request, "max", LLONG_MAX)) answer("too_large", measured.size);
    walk_roots(&roots, pack_node);
    if (emit(end, sizeof end) || flush()) answer(told_to_stop ? "too_slow" : "interrupted", measured.size);
    answer_packed("ok", fingerprint, processes);
}
