/* The control directory: entries that appear complete or not at all, and headers of requests. */
#ifndef CONTROL_H
#define CONTROL_H

#include <limits.h>
#include <stddef.h>

enum { KEY_LENGTH = 32 };
typedef long long ms;
#define MOST 1000000000000000LL /* bytes, or milliseconds */

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

#endif
