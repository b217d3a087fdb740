/* Tiles and lanes: the layout of arrays, and the differences between the compilers. Every other header includes this one.
 *
 * Kernels do the same operations as the array reference, in the same order, for many slots at a time. They are written in
 * the common subset of C (gcc, clang) and CUDA C++ (NVRTC). Every loop over lanes runs over independent slots, so any
 * vector width gives the same bits, provided that the compiler neither contracts a*b + c nor reorders: -ffp-contract=off
 * (NVRTC: --fmad=false), and no fast-math. Arrays are laid out [tiles, rows, WIDTH]: a tile holds the slots of one call
 * of a step function, and a row holds one number of each slot.
 *
 * On a CPU such a call loops over all LANES = WIDTH lanes, one vector register or several. On a device a tile has WIDTH x
 * PARTS threads, and a block has one tile or several. Each thread works on one lane, and on every PARTS-th column of a
 * layer. The threads of a block wait for each other at a BARRIER, and at ANY_LANE, which tells whether x is set in any
 * thread. A pointer into a tile begins at the caller's LANE.
 */
#pragma once

#ifdef __CUDACC__
typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef int int32_t;
typedef unsigned int uint32_t;
typedef long long int64_t;
typedef unsigned long long uint64_t;
#define LANES 1
#define WIDTH 32
#define LANE ((int64_t)threadIdx.x)
#define PART ((int64_t)threadIdx.y)
#define PARTS ((int64_t)blockDim.y)
#define THREAD (LANE + WIDTH * PART) /* of a tile, of THREADS */
#define THREADS (WIDTH * PARTS)
#define BARRIER() __syncthreads()
#define ANY_LANE(x) __syncthreads_or(x)
#define INLINE __device__ static __forceinline__
#define RESTRICT __restrict__
#define AS_VECTORS
#define ROLLED _Pragma("unroll 1")
#else
#include <math.h>
#include <stdint.h>
#include <string.h>
#ifndef LANES
#define LANES 16
#endif
#define WIDTH LANES
#define LANE 0
#define PART 0
#define PARTS 1
#define BARRIER()
#define ANY_LANE(x) (x)
#define INLINE static inline __attribute__((always_inline))
#define RESTRICT __restrict__
#define ROLLED
#if defined(__GNUC__) && defined(__x86_64__) && defined(__GLIBC__) && !defined(__SANITIZE_THREAD__) && \
    !(defined(__clang__) && __clang_major__ < 18)
/* One copy per instruction set, chosen when the library is loaded. Older clangs give the choice another name. The
   thread sanitizer is not ready yet when the choice is made. */
#define CLONES
#define DISPATCH __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define DISPATCH
#endif

#if defined(__clang__)
#define AS_VECTORS
#else
/* gcc would write such a loop out before it looks for vectors, and then find few. */
#define AS_VECTORS _Pragma("GCC unroll 1")
#endif

int evolve_lanes(void) { return LANES; }
#endif

/* For each lane t. */
#define FOR_LANES AS_VECTORS for (int t = 0; t < LANES; t++)

/* The place of a tile's first row for the caller, in an array of `rows` rows per tile. */
#define TILE(tile, rows) ((tile) * (rows) * WIDTH + LANE)

/* The first number of a slot in an array of tiles, of `rows` rows each. */
#define SLOT_ROWS(array, rows, slot) ((array) + (slot) / WIDTH * (rows) * WIDTH + (slot) % WIDTH)

/* Copy values [live, n], which lie slot by slot, into rows [n, WIDTH] of a tile. take_rows copies them back. */
INLINE void put_rows(float *rows, const float *values, int64_t n, int64_t live)
{
    for (int64_t t = 0; t < live; t++)
        for (int64_t i = PART; i < n; i += PARTS)
            rows[i * WIDTH + t] = values[t * n + i];
}

INLINE void take_rows(const float *rows, float *values, int64_t n, int64_t live)
{
    for (int64_t t = 0; t < live; t++)
        for (int64_t i = PART; i < n; i += PARTS)
            values[t * n + i] = rows[i * WIDTH + t];
}

/* The index of number i of the n numbers of a slot, in an array that is processed slot by slot. On a CPU the array
 * is [slots, n], because vector registers then hold consecutive numbers of a slot. On a device it is [tiles, n, WIDTH],
 * because neighbouring threads then use neighbouring addresses. */
#ifdef __CUDACC__
#define NUMBER(slot, i, n) (((slot) / WIDTH * (n) + (i)) * WIDTH + (slot) % WIDTH)
#else
#define NUMBER(slot, i, n) ((slot) * (n) + (i))
#endif
