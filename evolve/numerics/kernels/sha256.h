/* SHA-256 (FIPS 180-4) of many messages of one length on a CPU: by its instructions for SHA-256, about five times as fast as
 * without, else LANES messages side by side; hashlib is the definition. */
#pragma once
#include "lanes.h"

#ifndef __CUDACC__
#define ROTATED(x, n) ((x) >> (n) | (x) << (32 - (n)))

static const uint32_t sha256_constants[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};
static const uint32_t sha256_start[8] = {
    0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19,
};

/* One round: all rows [LANES], with the constant already added to the words. */
INLINE void sha256_round(const uint32_t *RESTRICT a, const uint32_t *RESTRICT b, const uint32_t *RESTRICT c,
                         uint32_t *RESTRICT d, const uint32_t *RESTRICT e, const uint32_t *RESTRICT f,
                         const uint32_t *RESTRICT g, uint32_t *RESTRICT h, uint32_t constant, const uint32_t *RESTRICT words)
{
    FOR_LANES
    {
        const uint32_t one = h[t] + (ROTATED(e[t], 6) ^ ROTATED(e[t], 11) ^ ROTATED(e[t], 25)) +
                             (g[t] ^ (e[t] & (f[t] ^ g[t]))) + constant + words[t];
        d[t] = d[t] + one;
        h[t] = one + (ROTATED(a[t], 2) ^ ROTATED(a[t], 13) ^ ROTATED(a[t], 22)) + ((a[t] & b[t]) | (c[t] & (a[t] | b[t])));
    }
}

/* The word that follows, from the words 16, 15, 7 and 2 places before it: rows [LANES]. */
INLINE void sha256_word(const uint32_t *RESTRICT w16, const uint32_t *RESTRICT w15, const uint32_t *RESTRICT w7,
                        const uint32_t *RESTRICT w2, uint32_t *RESTRICT word)
{
    FOR_LANES word[t] = w16[t] + (ROTATED(w15[t], 7) ^ ROTATED(w15[t], 18) ^ w15[t] >> 3) + w7[t] +
                        (ROTATED(w2[t], 17) ^ ROTATED(w2[t], 19) ^ w2[t] >> 10);
}

/* Take one block of each lane, words [64, LANES] of which 16 are given, into the states [8, LANES]. */
INLINE void take_blocks(uint32_t words[64][LANES], uint32_t states[8][LANES])
{
    for (int i = 16; i < 64; i++)
        sha256_word(words[i - 16], words[i - 15], words[i - 7], words[i - 2], words[i]);
    uint32_t s[8][LANES];
    memcpy(s, states, sizeof s);
    /* Instead of moving eight variables, each round calls them by the names that they have next. */
    for (int i = 0; i < 64; i += 8) {
        const uint32_t *k = sha256_constants + i;
        sha256_round(s[0], s[1], s[2], s[3], s[4], s[5], s[6], s[7], k[0], words[i]);
        sha256_round(s[7], s[0], s[1], s[2], s[3], s[4], s[5], s[6], k[1], words[i + 1]);
        sha256_round(s[6], s[7], s[0], s[1], s[2], s[3], s[4], s[5], k[2], words[i + 2]);
        sha256_round(s[5], s[6], s[7], s[0], s[1], s[2], s[3], s[4], k[3], words[i + 3]);
        sha256_round(s[4], s[5], s[6], s[7], s[0], s[1], s[2], s[3], k[4], words[i + 4]);
        sha256_round(s[3], s[4], s[5], s[6], s[7], s[0], s[1], s[2], k[5], words[i + 5]);
        sha256_round(s[2], s[3], s[4], s[5], s[6], s[7], s[0], s[1], k[6], words[i + 6]);
        sha256_round(s[1], s[2], s[3], s[4], s[5], s[6], s[7], s[0], k[7], words[i + 7]);
    }
    for (int i = 0; i < 8; i++)
        FOR_LANES states[i][t] = states[i][t] + s[i][t];
}

/* Write the 16 words of a block of bytes, the highest byte first, into lane t. */
INLINE void put_words(uint32_t words[64][LANES], int t, const uint8_t *block)
{
    for (int i = 0; i < 16; i++)
        words[i][t] = (uint32_t)block[4 * i] << 24 | (uint32_t)block[4 * i + 1] << 16 | (uint32_t)block[4 * i + 2] << 8 |
                      block[4 * i + 3];
}

/* n messages: each is a row of a [n, k], followed by a row of b [n, m]. */
typedef struct {
    const uint8_t *a, *b;
    int64_t k, m, n;
} messages;

/* The number of blocks of 64 bytes that a message and its end take. */
INLINE int64_t blocks_of(messages all) { return (all.k + all.m + 8) / 64 + 1; }

/* Copy what lies both in a block, the 64 bytes of a message from `first` on, and in a part of the message, `size` bytes from
 * `begin` on. */
INLINE void copy_part(uint8_t *block, int64_t first, const uint8_t *part, int64_t begin, int64_t size)
{
    const int64_t from = first > begin ? first : begin, to = first + 64 < begin + size ? first + 64 : begin + size;
    if (from < to)
        memcpy(block + from - first, part + from - begin, to - from);
}

/* Return the block of 64 bytes that begins at byte `first` of message `row`; of the last message if `row` is beyond it.
 * A block within `a` is not copied. Any other block, with bytes of `b` or of the padding, is put together in `buffer`. */
INLINE const uint8_t *block_of(messages all, int64_t row, int64_t first, uint8_t buffer[64])
{
    const int64_t message = row < all.n ? row : all.n - 1, size = all.k + all.m;
    if (first + 64 <= all.k)
        return all.a + message * all.k + first;
    memset(buffer, 0, 64);
    copy_part(buffer, first, all.a + message * all.k, 0, all.k);
    copy_part(buffer, first, all.b + message * all.m, all.k, all.m);
    if (first <= size && size < first + 64)
        buffer[size - first] = 0x80;
    for (int i = 0; i < 8 && first == 64 * (blocks_of(all) - 1); i++)
        buffer[56 + i] = (uint8_t)((uint64_t)size * 8 >> (56 - 8 * i));
    return buffer;
}

/* Write word i of a digest, the highest byte first. */
INLINE void put_digest(uint8_t *digest, int i, uint32_t word)
{
    for (int j = 0; j < 4; j++)
        digest[4 * i + j] = (uint8_t)(word >> (24 - 8 * j));
}

/* The digests [n, 32] of messages, LANES of them at a time. */
DISPATCH void evolve_sha256_by_lanes(const uint8_t *a, int64_t k, const uint8_t *b, int64_t m, uint8_t *digests, int64_t n)
{
    const messages all = {a, b, k, m, n};
    for (int64_t row = 0; row < n; row += LANES) {
        uint32_t states[8][LANES], words[64][LANES];
        for (int i = 0; i < 8; i++)
            FOR_LANES states[i][t] = sha256_start[i];
        for (int64_t block = 0; block < blocks_of(all); block++) {
            uint8_t buffer[64];
            for (int t = 0; t < LANES; t++)
                put_words(words, t, block_of(all, row + t, 64 * block, buffer));
            take_blocks(words, states);
        }
        for (int t = 0; t < LANES && row + t < n; t++)
            for (int i = 0; i < 8; i++)
                put_digest(digests + 32 * (row + t), i, states[i][t]);
    }
}

#ifdef __x86_64__
#include <cpuid.h>
#include <immintrin.h>

/* Whether this CPU has instructions for SHA-256 (bit 29 of EBX). */
INLINE int has_sha_instructions(void)
{
    unsigned a, b = 0, c, d;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && b >> 29 & 1;
}

#define AT_A_TIME 2 /* messages: each instruction waits for the one before, so the CPU computes another message meanwhile */
#define FOR_MESSAGES for (int t = 0; t < AT_A_TIME; t++)
#define SHA_INSTRUCTIONS __attribute__((target("sha,sse4.1")))

/* Rounds i to i + 3, and the words of rounds i + 16 to i + 19, which take the place of `one`. The registers hold the state as
 * the instructions need it: A, B, E, F and C, D, G, H (Gulley et al., "Intel SHA Extensions", 2013). */
#define FOUR_ROUNDS(i, one, two, three, four)                                                                              \
    FOR_MESSAGES                                                                                                           \
    {                                                                                                                      \
        __m128i sums = _mm_add_epi32(one[t], _mm_loadu_si128((const __m128i *)(sha256_constants + (i))));                  \
        cdgh[t] = _mm_sha256rnds2_epu32(cdgh[t], abef[t], sums);                                                           \
        abef[t] = _mm_sha256rnds2_epu32(abef[t], cdgh[t], _mm_shuffle_epi32(sums, 0x0e));                                  \
        sums = _mm_add_epi32(_mm_sha256msg1_epu32(one[t], two[t]), _mm_alignr_epi8(four[t], three[t], 4));                 \
        one[t] = _mm_sha256msg2_epu32(sums, four[t]);                                                                      \
    }

/* As `evolve_sha256_by_lanes`, by the instructions of this CPU. */
SHA_INSTRUCTIONS void evolve_sha256_by_instructions(const uint8_t *a, int64_t k, const uint8_t *b, int64_t m,
                                                    uint8_t *digests, int64_t n)
{
    const messages all = {a, b, k, m, n};
    const __m128i reversed = _mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203);
    const uint32_t *s = sha256_start;
    for (int64_t row = 0; row < n; row += AT_A_TIME) {
        __m128i abef[AT_A_TIME], cdgh[AT_A_TIME], w[4][AT_A_TIME];
        FOR_MESSAGES
        {
            abef[t] = _mm_set_epi32((int)s[0], (int)s[1], (int)s[4], (int)s[5]);
            cdgh[t] = _mm_set_epi32((int)s[2], (int)s[3], (int)s[6], (int)s[7]);
        }
        for (int64_t block = 0; block < blocks_of(all); block++) {
            __m128i abef_before[AT_A_TIME], cdgh_before[AT_A_TIME];
            FOR_MESSAGES
            {
                uint8_t buffer[64];
                const uint8_t *bytes = block_of(all, row + t, 64 * block, buffer);
                for (int i = 0; i < 4; i++)
                    w[i][t] = _mm_shuffle_epi8(_mm_loadu_si128((const __m128i *)(bytes + 16 * i)), reversed);
                abef_before[t] = abef[t], cdgh_before[t] = cdgh[t];
            }
            for (int i = 0; i < 64; i += 16) {
                FOUR_ROUNDS(i, w[0], w[1], w[2], w[3])
                FOUR_ROUNDS(i + 4, w[1], w[2], w[3], w[0])
                FOUR_ROUNDS(i + 8, w[2], w[3], w[0], w[1])
                FOUR_ROUNDS(i + 12, w[3], w[0], w[1], w[2])
            }
            FOR_MESSAGES
            {
                abef[t] = _mm_add_epi32(abef[t], abef_before[t]);
                cdgh[t] = _mm_add_epi32(cdgh[t], cdgh_before[t]);
            }
        }
        for (int t = 0; t < AT_A_TIME && row + t < n; t++) {
            static const int words[8] = {5, 4, 1, 0, 7, 6, 3, 2}; /* of F, E, B, A, H, G, D, C */
            uint32_t state[8];
            _mm_storeu_si128((__m128i *)state, abef[t]);
            _mm_storeu_si128((__m128i *)(state + 4), cdgh[t]);
            for (int i = 0; i < 8; i++)
                put_digest(digests + 32 * (row + t), words[i], state[i]);
        }
    }
}
#endif

/* The digests [n, 32] of n messages, each of them a row of a [n, k] followed by a row of b [n, m]. */
void evolve_sha256(const uint8_t *a, int64_t k, const uint8_t *b, int64_t m, uint8_t *digests, int64_t n)
{
#ifdef __x86_64__
    if (has_sha_instructions()) {
        evolve_sha256_by_instructions(a, k, b, m, digests, n);
        return;
    }
#endif
    evolve_sha256_by_lanes(a, k, b, m, digests, n);
}
#endif
