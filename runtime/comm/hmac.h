/* HMAC-SHA256: proof that two sides know one secret, without saying it. Private. FIPS 180-4, RFC 2104.
 *
 * No table and no branch depends on the secret or the message. Why it is ours and no library's: rendezvous.h. */
#ifndef KVG_HMAC_H
#define KVG_HMAC_H

#include <stddef.h>
#include <stdint.h>

#define KVG_HMAC_BYTES 32

typedef struct KvgSha256 {
    uint32_t state[8];
    uint64_t byte_count;
    uint8_t  block[64]; /* byte_count % 64 of them are waiting */
} KvgSha256;

void kvg_sha256_begin(KvgSha256 *hash);
void kvg_sha256_add(KvgSha256 *hash, const void *bytes, size_t byte_count);
void kvg_sha256_end(KvgSha256 *hash, uint8_t digest[KVG_HMAC_BYTES]);

void kvg_hmac(const void *key, size_t key_bytes, const void *bytes, size_t byte_count, uint8_t mac[KVG_HMAC_BYTES]);
/* 1 if equal; all bytes are looked at, so that its time tells nothing. */
int kvg_hmac_equal(const uint8_t a[KVG_HMAC_BYTES], const uint8_t b[KVG_HMAC_BYTES]);

#endif
