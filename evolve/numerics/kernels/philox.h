/* The words of keyed streams; streams.py is their definition. */
#pragma once
#include "lanes.h"

/* The product of two words, 128 bits, as two words. */
INLINE void multiply_words(uint64_t x, uint64_t y, uint64_t *high, uint64_t *low)
{
#ifdef __CUDACC__
    *high = __umul64hi(x, y);
    *low = x * y;
#else
    unsigned __int128 product = (unsigned __int128)x * y;
#ifndef __clang__
    __asm__("" : "+r"(product)); /* gcc would multiply once for each of the two words */
#endif
    *high = (uint64_t)(product >> 64);
    *low = (uint64_t)product;
#endif
}

/* Philox4x64-10 (Salmon et al., 2011): the four words of a counter under a key. */
INLINE void philox(uint64_t counter, uint64_t key0, uint64_t key1, uint64_t *words)
{
    uint64_t c0 = counter, c1 = 0, c2 = 0, c3 = 0;
    for (int turn = 0; turn < 10; turn++) {
        uint64_t high0, low0, high2, low2;
        multiply_words(c0, 0xD2E7470EE14C6C93u, &high0, &low0);
        multiply_words(c2, 0xCA5A826395121157u, &high2, &low2);
        c0 = high2 ^ c1 ^ key0;
        c2 = high0 ^ c3 ^ key1;
        c1 = low2;
        c3 = low0;
        key0 += 0x9E3779B97F4A7C15u;
        key1 += 0xBB67AE8584CAA73Bu;
    }
    words[0] = c0;
    words[1] = c1;
    words[2] = c2;
    words[3] = c3;
}

/* NumPy's seed sequences; streams.py is their definition. */
typedef struct {
    uint32_t value, factor;
} hash_constant;

INLINE uint32_t seed_hash(uint32_t word, hash_constant *constant)
{
    word ^= constant->value;
    constant->value *= constant->factor;
    word *= constant->value;
    return word ^ word >> 16;
}

INLINE uint32_t seed_mix(uint32_t one, uint32_t other)
{
    uint32_t mixed = one * 0xCA01F9DDu - other * 0x4973F715u;
    return mixed ^ mixed >> 16;
}

/* Mix four words of entropy into the pool of a seed sequence. */
INLINE void seed_pool(const uint32_t *entropy, uint32_t *pool, hash_constant *constant)
{
    for (int k = 0; k < 4; k++)
        pool[k] = seed_hash(entropy[k], constant);
    for (int source = 0; source < 4; source++)
        for (int target = 0; target < 4; target++)
            if (source != target)
                pool[target] = seed_mix(pool[target], seed_hash(pool[source], constant));
}

#ifndef __CUDACC__
#include "normal.h"

/* Many streams at once: streams.py is their definition. */

/* Seed sequences are computed side by side, because each word of one depends on the word before. */
#define SEQUENCES 16
#define FOR_SEQUENCES AS_VECTORS for (int i = 0; i < SEQUENCES; i++)

/* Hash words, all by the same constants. */
INLINE void hash_rows(const uint32_t *words, uint32_t *hashed, hash_constant *constant)
{
    const uint32_t before = constant->value, after = before * constant->factor;
    FOR_SEQUENCES
    {
        const uint32_t word = (words[i] ^ before) * after;
        hashed[i] = word ^ word >> 16;
    }
    constant->value = after;
}

/* Mix the hash of words into a word of each pool. */
INLINE void mix_rows(uint32_t *pool, const uint32_t *words, hash_constant *constant)
{
    uint32_t hashed[SEQUENCES];
    hash_rows(words, hashed, constant);
    FOR_SEQUENCES
        pool[i] = seed_mix(pool[i], hashed[i]);
}

/* Word w of the input of the `live` first sequences: entropy, then the key. */
INLINE void input_rows(const uint32_t *entropy, int64_t m, int64_t of_each, const int64_t *keys, int64_t live, int64_t w,
                       uint32_t *words)
{
    for (int64_t i = 0; i < live; i++)
        words[i] = w < m ? entropy[i * of_each + w] : (uint32_t)keys[4 * i + w - m];
}

/* The first words of at most SEQUENCES seed sequences: words [count, SEQUENCES]. */
DISPATCH void evolve_seed_rows(const uint32_t *entropy, int64_t m, int64_t of_each, const int64_t *keys, int64_t live,
                               uint32_t *words, int64_t count)
{
    hash_constant constant = {0x43B0D7E5u, 0x931E8875u}, last = {0x8B51F9DDu, 0x58F38DEDu};
    uint32_t pool[4][SEQUENCES], input[SEQUENCES] = {0};
    for (int k = 0; k < 4; k++) {
        input_rows(entropy, m, of_each, keys, live, k, input);
        hash_rows(input, pool[k], &constant);
    }
    for (int from = 0; from < 4; from++)
        for (int to = 0; to < 4; to++)
            if (from != to)
                mix_rows(pool[to], pool[from], &constant);
    for (int64_t w = 4; w < m + 4; w++) {
        input_rows(entropy, m, of_each, keys, live, w, input);
        for (int k = 0; k < 4; k++)
            mix_rows(pool[k], input, &constant);
    }
    for (int k = 0; k < count; k++)
        hash_rows(pool[k], words + k * SEQUENCES, &last);
}

/* The first `count` words (at most 4) of n seed sequences, each from m words of entropy and the four words of a key, keys
 * [n, 4]. The entropy of the next sequence lies `of_each` words on; 0 if all sequences share it. */
void evolve_seed_words(const uint32_t *entropy, int64_t m, int64_t of_each, const int64_t *keys, uint32_t *words,
                       int64_t count, int64_t n)
{
    uint32_t rows[4 * SEQUENCES];
    for (int64_t first = 0; first < n; first += SEQUENCES) {
        const int64_t live = n - first < SEQUENCES ? n - first : SEQUENCES;
        evolve_seed_rows(entropy + first * of_each, m, of_each, keys + 4 * first, live, rows, count);
        for (int64_t i = 0; i < live; i++)
            for (int k = 0; k < count; k++)
                words[count * (first + i) + k] = rows[k * SEQUENCES + i];
    }
}

/* Write words number first ... first + n - 1 of the stream of a key into `buffer` [AT_ONCE + 4]; n is at most
 * AT_ONCE. Return the address of word `first`. Up to 3 earlier words precede it, as a counter gives 4 words. */
INLINE const uint64_t *stream_words(const uint64_t *key, int64_t first, uint64_t *buffer, int64_t n)
{
    const int64_t skipped = first % 4;
    for (int64_t w = 0; w < skipped + n; w += 4)
        philox((first + w) / 4 + 1, key[0], key[1], buffer + w);
    return buffer + skipped;
}

/* The number in (0, 1) that a word stands for. */
INLINE double open_interval(uint64_t word)
{
    return ((double)(word >> 12) + 0.5) * (1.0 / TO_WORD);
}

/* Standard normal deviates [n], at most AT_ONCE: the numbers from `first` on of the stream of a key. */
INLINE void normal_part(const uint64_t *key, int64_t first, float *deviates, int64_t n)
{
    uint64_t buffer[AT_ONCE + 4];
    evolve_normal(stream_words(key, first, buffer, n), deviates, n);
}

#define FOR_PARTS(first, stop) \
    for (int64_t i = first, part; part = (stop) - i < AT_ONCE ? (stop) - i : AT_ONCE, i < (stop); i += part)

/* Standard normal deviates [n, stop - first]: numbers first ... stop - 1 of the streams of n keys [n, 2]. */
DISPATCH void evolve_normal_rows(const uint64_t *keys, int64_t first, int64_t stop, float *deviates, int64_t n)
{
    for (int64_t row = 0; row < n; row++)
        FOR_PARTS(first, stop)
        {
            normal_part(keys + 2 * row, i, deviates, part);
            deviates += part;
        }
}

/* Uniform numbers [n, stop - first], as normal_rows. */
DISPATCH void evolve_uniform_rows(const uint64_t *keys, int64_t first, int64_t stop, double *numbers, int64_t n)
{
    uint64_t buffer[AT_ONCE + 4];
    for (int64_t row = 0; row < n; row++)
        FOR_PARTS(first, stop)
        {
            const uint64_t *words = stream_words(keys + 2 * row, i, buffer, part);
            for (int64_t k = 0; k < part; k++)
                *numbers++ = open_interval(words[k]);
        }
}

/* Whether uniform numbers are at least their thresholds, [n, stop - first]; the thresholds of neighbours lie `down` and
 * `right` apart, 0 for one that they share. */
DISPATCH void evolve_at_least_rows(const uint64_t *keys, int64_t first, int64_t stop, const double *thresholds,
                                   int64_t down, int64_t right, uint8_t *reached, int64_t n)
{
    uint64_t buffer[AT_ONCE + 4];
    for (int64_t row = 0; row < n; row++)
        FOR_PARTS(first, stop)
        {
            const uint64_t *words = stream_words(keys + 2 * row, i, buffer, part);
            const double *threshold = thresholds + row * down + (i - first) * right;
            for (int64_t k = 0; k < part; k++)
                *reached++ = open_interval(words[k]) >= threshold[k * right];
        }
}
#endif
