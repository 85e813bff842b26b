/* What writing and reading archives share. */
#include "tar.h"

#include <stdio.h>
#include <string.h>

/* Lines "root LABEL PATH" of a request. */
void read_roots(const struct header *header, struct roots *roots) {
    roots->count = 0;
    for (const char *line = header->text; *line && roots->count < MAX_ROOTS; line = strchr(line, '\n') + 1) {
        struct root *root = &roots->all[roots->count];
        if (strncmp(line, "root ", 5)) continue;
        const char *label = line + 5, *space = strchr(label, ' '), *end = strchr(label, '\n');
        if (!space || space > end) continue;
        snprintf(root->label, sizeof root->label, "%.*s", (int)(space - label), label);
        snprintf(root->path, sizeof root->path, "%.*s", (int)(end - space - 1), space + 1);
        roots->count++;
    }
}

void fill_checksum(struct tar_header *header) {
    unsigned sum = 0;
    memset(header->checksum, ' ', sizeof header->checksum);
    for (size_t i = 0; i < BLOCK; i++) sum += ((unsigned char *)header)[i];
    snprintf(header->checksum, sizeof header->checksum, "%06o", sum);
    header->checksum[7] = ' ';
}
