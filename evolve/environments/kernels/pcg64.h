/* NumPy's generator PCG64 (O'Neill, 2014), as Gymnasium seeds it: default_rng(seed), a SeedSequence of one number.
 * exact/task.py is the definition. Arithmetic is in whole numbers, so the draws have the same bits everywhere. */
#pragma once
#include "philox.h"

typedef struct {
    uint64_t high, low;                     /* the state, 128 bits */
    uint64_t increment_high, increment_low; /* of the stream, odd */
    uint32_t has_half, half;                /* the upper half of a word after its lower half was used */
} pcg64;

INLINE void pcg64_step(pcg64 *r)
{
    const uint64_t m_high = 0x2360ED051FC65DA4u, m_low = 0x4385DF649FCCF645u;
    uint64_t high, low;
    multiply_words(r->low, m_low, &high, &low);
    high += r->high * m_low + r->low * m_high;
    r->low = low + r->increment_low;
    r->high = high + r->increment_high + (r->low < low);
}

INLINE uint64_t pcg64_word(pcg64 *r)
{
    pcg64_step(r);
    const uint64_t mixed = r->high ^ r->low;
    const int turn = (int)(r->high >> 58);
    return mixed >> turn | mixed << (-turn & 63);
}

INLINE void pcg64_seed(pcg64 *r, int64_t seed)
{
    const uint32_t entropy[4] = {(uint32_t)seed, (uint32_t)((uint64_t)seed >> 32), 0, 0};
    uint32_t pool[4];
    uint64_t words[4];
    hash_constant first = {0x43B0D7E5u, 0x931E8875u}, last = {0x8B51F9DDu, 0x58F38DEDu};
    seed_pool(entropy, pool, &first);
    for (int i = 0; i < 4; i++) {
        const uint64_t lower = seed_hash(pool[2 * i % 4], &last);
        words[i] = (uint64_t)seed_hash(pool[(2 * i + 1) % 4], &last) << 32 | lower;
    }
    r->increment_high = words[2] << 1 | words[3] >> 63;
    r->increment_low = words[3] << 1 | 1;
    r->high = r->low = 0;
    r->has_half = r->half = 0;
    pcg64_step(r);
    const uint64_t low = r->low;
    r->low = low + words[1];
    r->high = r->high + words[0] + (r->low < low);
    pcg64_step(r);
}

/* Uniform on [0, 1), and on [low, high). */
INLINE double pcg64_random(pcg64 *r) { return (double)(pcg64_word(r) >> 11) * (1.0 / 9007199254740992.0); }
INLINE double pcg64_uniform(pcg64 *r, double low, double high) { return low + (high - low) * pcg64_random(r); }

INLINE uint32_t pcg64_half(pcg64 *r)
{
    if (r->has_half) {
        r->has_half = 0;
        return r->half;
    }
    const uint64_t word = pcg64_word(r);
    r->has_half = 1;
    r->half = (uint32_t)(word >> 32);
    return (uint32_t)word;
}

/* A whole number of low ... high - 1 (Lemire, 2019). One that is certain takes no draw. */
INLINE int32_t pcg64_integer(pcg64 *r, int32_t low, int32_t high)
{
    const uint32_t count = (uint32_t)(high - low);
    if (count == 1)
        return low;
    uint64_t product = (uint64_t)pcg64_half(r) * count;
    const uint32_t threshold = (uint32_t)(0u - count) % count;
    while ((uint32_t)product < threshold)
        product = (uint64_t)pcg64_half(r) * count;
    return low + (int32_t)(product >> 32);
}
