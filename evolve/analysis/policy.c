/* $title
 *
 * void policy_reset(void)                                    starts an episode: loads the weights, clears the memory
 * void policy_step(const float *observation, float *output)  advances the network by one step
 *
 * observation: POLICY_OBSERVATIONS finite numbers, flattened as in training, discrete values one-hot.
 * output: POLICY_OUTPUTS numbers in [-1, 1].
$spaces
 *
 * It allocates nothing: $constants bytes of constants, $state bytes of state.
 *
 * Compile with: cc -std=gnu11 -O2 -ffp-contract=off, or c++ -std=gnu++17 and the same options. Fast-math changes
 * results, and so does fused multiply-add, which some compilers use by default. Pragmas below forbid fused multiply-add,
 * unless clang has the option -ffp-contract=fast. Written by evolve $version; its kernels are under the MIT licence.
 */
#if defined(__FAST_MATH__) || defined(__ASSOCIATIVE_MATH__) || defined(__RECIPROCAL_MATH__)
#error "compile without -ffast-math and the like, which change results"
#endif
#if defined(__FLT_EVAL_METHOD__) && __FLT_EVAL_METHOD__ != 0 && __FLT_EVAL_METHOD__ != 16 /* 16: float stays float */
#error "compile for arithmetic that rounds to the type, as with -msse2 -mfpmath=sse on 32-bit x86"
#endif
typedef char policy_needs_constants_of_8_bytes[sizeof(0.1) == 8 ? 1 : -1]; /* no -fsingle-precision-constant */
#define POLICY_OBSERVATIONS $observations
#define POLICY_OUTPUTS $outputs
#define LANES 1
#if defined(__clang__)
#pragma float_control(push)
#pragma float_control(precise, on)
#pragma STDC FP_CONTRACT OFF /* last, because `precise` allows contraction */
#elif defined(__GNUC__)
#pragma GCC push_options
#pragma GCC optimize("fp-contract=off")
#endif

$headers
$arrays

void policy_reset(void);
void policy_step(const float *observation, float *output);

static int is_loaded;

void policy_reset(void)
{
$reset
    is_loaded = 1;
}

void policy_step(const float *observation, float *output)
{
    if (!is_loaded)
        policy_reset();
$normalization    evolve_$kernel(&net, $seen, output, 1);
}

#if defined(__clang__)
#pragma float_control(pop)
#elif defined(__GNUC__)
#pragma GCC pop_options
#endif
