#ifndef __CUDACC__
/* Fingerprints and step hashes of the episodes in the slots of a batch; numerics/hashing.py is their definition. */
typedef struct {
    int64_t sizes[2]; /* O, A */
    int64_t room;
    const float *observations; /* [slots, O] */
    const uint64_t *coefficients;
    uint64_t *states; /* [slots, 2] */
    int32_t *steps;   /* [slots] */
    uint8_t *step_hashes; /* [slots, room, 2] */
} fingerprints;

INLINE uint64_t fold(const float *row, int64_t n, const uint64_t *coefficients)
{
    uint64_t sum = 0;
    for (int64_t i = 0; i < n; i++) {
        uint32_t word;
        memcpy(&word, row + i, sizeof word);
        word = (word & 0x7FFFFFFF) > 0x7F800000 ? 0x7FC00000 : word; /* one NaN for all */
        sum += coefficients[i] * word;
    }
    return sum;
}

/* Take in one step of the first `slots` slots, outputs [slots, A]. */
void evolve_fingerprint(const fingerprints *f, const float *outputs, int64_t slots)
{
    const float *rows[2] = {f->observations, outputs};
    for (int64_t slot = 0; slot < slots; slot++, f->steps[slot - 1]++)
        for (int64_t which = 0; which < 2; which++) {
            uint64_t *state = f->states + 2 * slot + which;
            uint64_t h = *state ^ fold(rows[which] + slot * f->sizes[which], f->sizes[which], f->coefficients);
            h *= 0x9E3779B97F4A7C15;
            *state = h ^ h >> 32;
            if (f->steps[slot] < f->room)
                f->step_hashes[2 * (slot * f->room + f->steps[slot]) + which] = *state >> 56;
        }
}
#endif
