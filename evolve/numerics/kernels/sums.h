/* The weighted sums of a layer. ABREAST columns are added up side by side, in registers, to hide the latency of the chain
 * of additions; the threads of a device share them. */
#pragma once
#include "lanes.h"

#define ABREAST 4

/* Call f(k, width) for the columns of the caller's part, in groups of `width` columns from column k on. If there are at
 * least as many parts as columns, a part has at most one column. */
#define FOR_COLUMNS(columns, f)                                                           \
    do {                                                                                  \
        const int64_t abreast = (columns) > PARTS ? (columns) / ABREAST * ABREAST : 0;    \
        for (int64_t k = PART * ABREAST; k < abreast; k += PARTS * ABREAST)               \
            f(k, ABREAST);                                                                \
        for (int64_t k = abreast + PARTS - 1 - PART; k < (columns); k += PARTS)           \
            f(k, 1);                                                                      \
    } while (0)

/* The same for a matrix that is also written. TOTALS declares the sums of the columns, `total`, and KEEP_TOTALS writes
 * them to z. A CPU takes all columns together, row by row, in the order of memory. The sums then stay in the
 * first-level cache, and `total` is z itself. */
#ifdef __CUDACC__
#define FOR_WRITTEN_COLUMNS FOR_COLUMNS
#define TOTALS(z) float total[ABREAST][LANES]
#define KEEP_TOTALS(z, width)           \
    for (int64_t k = 0; k < width; k++) \
        z[k * WIDTH] = total[k][0];
#else
#define FOR_WRITTEN_COLUMNS(columns, f) f((int64_t)0, columns)
#define TOTALS(z) float(*total)[LANES] = (float(*)[LANES])(z)
#define KEEP_TOTALS(z, width)
#endif

/* A matrix that is written is processed in blocks of `deep` rows and WIDE columns. A whole block is read before any of
 * it is written, so that a device can issue all reads of a block at once. A block begins at (row, first), and j and k
 * count its rows and columns. In place of rows beyond the last one, row `row` is read, and the result dropped. */
#ifdef __CUDACC__
#define DEEP 2
#define WIDE ABREAST
#define UNROLL _Pragma("unroll")
#else
#define DEEP 1
#define WIDE 1
#define UNROLL
#endif
#define FOR_BLOCKS(deep, rows, width)                  \
    for (int64_t row = 0; row < (rows); row += (deep)) \
        for (int64_t first = 0; first < (width); first += WIDE)
#define FOR_BLOCK(deep, width)        \
    UNROLL                            \
    for (int j = 0; j < (deep); j++)  \
        UNROLL                        \
        for (int k = 0; k < WIDE; k++) \
            if (first + k < (width))
#define BLOCK_ROW(rows) (row + j < (rows) ? row + j : row)
#define BLOCK_AT(rows, columns) ((BLOCK_ROW(rows) * (columns) + first + k) * WIDTH)

/* The statement; on a CPU two copies of it, which know whether the flag is set. gcc does not unswitch loops over blocks by
 * itself: a trace that may or may not be updated goes through memory then, while each copy keeps it in a register. */
#ifdef __CUDACC__
#define UNSWITCH(flag, statement) statement
#else
#define UNSWITCH(flag, statement) \
    do {                          \
        if (flag) {               \
            const int flag = 1;   \
            statement;            \
        } else {                  \
            const int flag = 0;   \
            statement;            \
        }                         \
    } while (0)
#endif

/* A CPU reads a matrix that is larger than its caches a few rows at a time, in their order in memory, while z stays in the
 * first cache. The order of additions is the same. */
#ifdef __CUDACC__
#define ROWS_TOGETHER(rows, columns) (rows)
#else
#define LARGE 4096 /* weights of a slot: 256 kB of a tile */
#define ROWS_TOGETHER(rows, columns) ((rows) * (columns) > LARGE ? 8 : (rows))
#endif

/* z[k] = x[0]*w[0,k] + x[1]*w[1,k] + ... in that order, for `width` columns from k on. This call adds rows first ... last - 1
 * to the sums of the rows before, which z holds. */
INLINE void column_sums(const float *x, const float *w, float *z, int64_t first, int64_t last, int64_t columns, int width)
{
    float total[ABREAST][LANES];
    for (int k = 0; k < width; k++)
        for (int t = 0; t < LANES; t++)
            total[k][t] = first ? z[k * WIDTH + t] : x[t] * w[k * WIDTH + t];
    for (int64_t r = first ? first : 1; r < last; r++)
        for (int k = 0; k < width; k++)
            for (int t = 0; t < LANES; t++)
                total[k][t] = total[k][t] + x[r * WIDTH + t] * w[(r * columns + k) * WIDTH + t];
    for (int k = 0; k < width; k++)
        for (int t = 0; t < LANES; t++)
            z[k * WIDTH + t] = total[k][t];
}

/* z = x W for W [rows, columns]. */
INLINE void weighted_sums(const float *x, const float *w, float *z, int64_t rows, int64_t columns)
{
    const int64_t together = ROWS_TOGETHER(rows, columns);
    for (int64_t first = 0; first < rows; first += together) {
        const int64_t last = first + together < rows ? first + together : rows;
#define SUM(k, width) column_sums(x, w + (k) * WIDTH, z + (k) * WIDTH, first, last, columns, width)
        FOR_COLUMNS(columns, SUM);
#undef SUM
    }
}
