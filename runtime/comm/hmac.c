/* HMAC-SHA256: FIPS 180-4 section 6.2 and RFC 2104, as written there. */
#include "runtime/comm/hmac.h"

#include <string.h>

static const uint32_t round_constant[64] = { /* FIPS 180-4, 4.2.2: cube roots of the first 64 primes */
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5, 0xd807aa98, 0x12835b01, 0x243185be,
    0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa,
    0x5cb0a9dc, 0x76f988da, 0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967, 0x27b70a85,
    0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85, 0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3,
    0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070, 0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f,
    0x682e6ff3, 0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2
};

static uint32_t rotate(uint32_t word, int by)
{
    return word >> by | word << (32 - by);
}

/* Big-endian on every host, as the standard has it. */
static uint32_t load(const uint8_t *bytes)
{
    return (uint32_t)bytes[0] << 24 | (uint32_t)bytes[1] << 16 | (uint32_t)bytes[2] << 8 | bytes[3];
}

static void store(uint32_t word, uint8_t *bytes)
{
    for (int i = 0; i < 4; i++) {
        bytes[i] = (uint8_t)(word >> (24 - 8 * i));
    }
}

static void mix_block(KvgSha256 *hash, const uint8_t block[64])
{
    uint32_t w[64], v[8];

    for (int t = 0; t < 16; t++) {
        w[t] = load(block + 4 * t);
    }
    for (int t = 16; t < 64; t++) {
        uint32_t s0 = rotate(w[t - 15], 7) ^ rotate(w[t - 15], 18) ^ w[t - 15] >> 3;
        uint32_t s1 = rotate(w[t - 2], 17) ^ rotate(w[t - 2], 19) ^ w[t - 2] >> 10;

        w[t] = s1 + w[t - 7] + s0 + w[t - 16];
    }
    memcpy(v, hash->state, sizeof v);
    for (int t = 0; t < 64; t++) { /* v: a b c d e f g h */
        uint32_t s1 = rotate(v[4], 6) ^ rotate(v[4], 11) ^ rotate(v[4], 25);
        uint32_t choice = (v[4] & v[5]) ^ (~v[4] & v[6]);
        uint32_t t1 = v[7] + s1 + choice + round_constant[t] + w[t];
        uint32_t s0 = rotate(v[0], 2) ^ rotate(v[0], 13) ^ rotate(v[0], 22);
        uint32_t majority = (v[0] & v[1]) ^ (v[0] & v[2]) ^ (v[1] & v[2]);

        memmove(v + 1, v, 7 * sizeof v[0]);
        v[4] += t1;
        v[0] = t1 + s0 + majority;
    }
    for (int i = 0; i < 8; i++) {
        hash->state[i] += v[i];
    }
}

void kvg_sha256_begin(KvgSha256 *hash)
{
    static const uint32_t first[8] = { 0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19 };

    memset(hash, 0, sizeof *hash);
    memcpy(hash->state, first, sizeof first);
}

void kvg_sha256_add(KvgSha256 *hash, const void *bytes, size_t byte_count)
{
    const uint8_t *from = bytes;

    while (byte_count > 0) {
        size_t waiting = hash->byte_count % 64, now = byte_count < 64 - waiting ? byte_count : 64 - waiting;

        memcpy(hash->block + waiting, from, now);
        hash->byte_count += now;
        from += now;
        byte_count -= now;
        if (hash->byte_count % 64 == 0) {
            mix_block(hash, hash->block);
        }
    }
}

void kvg_sha256_end(KvgSha256 *hash, uint8_t digest[KVG_HMAC_BYTES])
{
    static const uint8_t padding[64] = { 0x80 };
    uint64_t             bits = hash->byte_count * 8;
    uint8_t              length[8];

    kvg_sha256_add(hash, padding, 1 + (119 - hash->byte_count % 64) % 64);
    store((uint32_t)(bits >> 32), length);
    store((uint32_t)bits, length + 4);
    kvg_sha256_add(hash, length, sizeof length);
    for (int i = 0; i < 8; i++) {
        store(hash->state[i], digest + 4 * i);
    }
}

/* One of HMAC's two hashes: the padded key, then the bytes. */
static void keyed(const uint8_t key[64], uint8_t pad, const void *bytes, size_t byte_count, uint8_t digest[KVG_HMAC_BYTES])
{
    KvgSha256 hash;
    uint8_t   padded[64];

    for (int i = 0; i < 64; i++) {
        padded[i] = key[i] ^ pad;
    }
    kvg_sha256_begin(&hash);
    kvg_sha256_add(&hash, padded, sizeof padded);
    kvg_sha256_add(&hash, bytes, byte_count);
    kvg_sha256_end(&hash, digest);
}

void kvg_hmac(const void *key, size_t key_bytes, const void *bytes, size_t byte_count, uint8_t mac[KVG_HMAC_BYTES])
{
    uint8_t   block[64] = { 0 }, inner[KVG_HMAC_BYTES];
    KvgSha256 hash;

    if (key_bytes > sizeof block) {
        kvg_sha256_begin(&hash);
        kvg_sha256_add(&hash, key, key_bytes);
        kvg_sha256_end(&hash, block);
    } else if (key_bytes > 0) {
        memcpy(block, key, key_bytes);
    }
    keyed(block, 0x36, bytes, byte_count, inner);
    keyed(block, 0x5c, inner, sizeof inner, mac);
}

int kvg_hmac_equal(const uint8_t a[KVG_HMAC_BYTES], const uint8_t b[KVG_HMAC_BYTES])
{
    uint8_t difference = 0;

    for (int i = 0; i < KVG_HMAC_BYTES; i++) {
        difference |= a[i] ^ b[i];
    }
    return difference == 0;
}
