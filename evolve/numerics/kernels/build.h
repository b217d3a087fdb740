/* A description of the build, from the macros of the compiler. No kernel uses it; benchmarks record it.
 *
 * Its parts are separated by "; ": the compiler, then the options that decide speed or bits. "clones" means that each
 * kernel has one copy per instruction set, see lanes.h.
 */
#pragma once
#include "lanes.h"

#ifndef __CUDACC__
#ifdef __clang__
#define COMPILER __VERSION__
#else
#define COMPILER "GCC " __VERSION__
#endif
#ifdef __OPTIMIZE__
#define OPTIMIZED "; optimized"
#else
#define OPTIMIZED "; not optimized"
#endif
#if defined(__FAST_MATH__) || defined(__ASSOCIATIVE_MATH__) || defined(__RECIPROCAL_MATH__)
#define FAST_MATH "; fast-math"
#else
#define FAST_MATH "; no fast-math"
#endif
#if defined(__FMA__) || defined(__ARM_FEATURE_FMA)
#define FUSED "; has fused multiply-add"
#else
#define FUSED "; no fused multiply-add"
#endif
#ifdef CLONES
#define COPIES "; clones"
#else
#define COPIES "; no clones"
#endif

#ifdef SOURCES /* a fingerprint of the headers, from setup.py */
const char evolve_sources[] = SOURCES;
#endif
const char evolve_build[] = COMPILER OPTIMIZED FAST_MATH FUSED COPIES;
#endif
