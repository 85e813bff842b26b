/* SHA-256. */
#ifndef SHA256_H
#define SHA256_H

#include <stddef.h>
#include <stdint.h>

enum { DIGEST = 32 };
struct sha256 {
    uint32_t state[8];
    uint64_t length;
    unsigned char block[64];
};
void sha256_begin(struct sha256 *hash);
void sha256_add(struct sha256 *hash, const void *bytes, size_t length);
void sha256_end(struct sha256 *hash, unsigned char digest[DIGEST]);

#endif
