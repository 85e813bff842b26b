/* Memory that grows, and bytes as text. */
#include "bytes.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

void *grown(void *memory, size_t *room, size_t wanted, size_t each) {
    if (wanted <= *room) return memory;
    *room = wanted * 2;
    memory = realloc(memory, *room * each);
    if (!memory) _exit(1);
    return memory;
}

void hexadecimal(const unsigned char *bytes, size_t length, char *text) {
    for (size_t i = 0; i < length; i++) snprintf(text + 2 * i, 3, "%02x", bytes[i]);
}
