/* Tiles and lanes: how kernels are written, and how they are declared. The first header of the compilation unit.
 *
 * Kernels do the same operations as the array reference, in the same order, for many slots at a time. They are written in
 * the common subset of C and CUDA C++. Every loop over lanes runs over independent slots, so any vector width gives the
 * same bits, provided that the compiler neither contracts a*b + c nor reorders: -ffp-contract=off (nvcc: -fmad=false),
 * and no fast-math. Arrays are laid out [tiles, rows, LANES]: one tile is what one call of a step function works on, and
 * a row of it is one vector register, or several.
 */
#include <math.h>
#include <stdint.h>
#include <string.h>

#ifndef LANES
#define LANES 16
#endif

#ifdef __CUDACC__
#define INLINE __device__ static inline
#define EXPORT extern "C"
#define DISPATCH
#else
#define INLINE static inline __attribute__((always_inline))
#define EXPORT
#if defined(__GNUC__) && defined(__x86_64__) && defined(__GLIBC__)
/* One copy per instruction set, chosen when the library is loaded. */
#define DISPATCH __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define DISPATCH
#endif
#endif

#ifndef __CUDACC__
EXPORT int evolve_lanes(void) { return LANES; }
#endif
