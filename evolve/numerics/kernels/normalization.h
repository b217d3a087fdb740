/* Normalization of the observations of the slots of a batch; rollouts/normalizing.py is its definition. */
typedef struct {
    int64_t size; /* O */
    const float *observations; /* [slots, O] */
    const float *normalizers;  /* [slots, 2, O]: what is subtracted, and what the rest is multiplied by */
    double *moments;           /* [slots, 2, O]: sums, and sums of squares */
    float *seen;               /* [slots, O] */
} normalization;

DISPATCH void evolve_normalize(const normalization *n, int64_t slots)
{
    const int64_t O = n->size;
    for (int64_t slot = 0; slot < slots; slot++) {
        const float *x = n->observations + slot * O, *mean = n->normalizers + 2 * slot * O, *scale = mean + O;
        double *sums = n->moments + 2 * slot * O, *squares = sums + O;
        float *seen = n->seen + slot * O;
        for (int64_t o = 0; o < O; o++) {
            const double wide = x[o];
            sums[o] = sums[o] + wide;
            squares[o] = squares[o] + wide * wide;
            float y = (x[o] - mean[o]) * scale[o];
            y = y < -5.0f ? -5.0f : y;
            seen[o] = y > 5.0f ? 5.0f : y;
        }
    }
}
