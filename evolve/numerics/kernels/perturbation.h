/* Weights moved by the normal deviates of keyed streams, in one pass over memory, on a CPU; perturbation.py is their
 * definition. Each stream has a key of two words. */

/* Rows [n, W]: the centre [W] plus steps[i] times the deviates of keys[i], 0 where the mask [W] is. */
DISPATCH void evolve_around(const double *centre, const uint8_t *mask, const uint64_t *keys, const double *steps,
                            float *rows, int64_t n, int64_t W)
{
    float noise[AT_ONCE];
    for (int64_t row = 0, next; row < n; row = next) {
        const uint64_t *key = keys + 2 * row;
        for (next = row + 1; next < n && keys[2 * next] == key[0] && keys[2 * next + 1] == key[1]; next++)
            ;
        FOR_PARTS(0, W)
        {
            normal_part(key, i, noise, part);
            for (int64_t same = row; same < next; same++)
                for (int64_t k = 0; k < part; k++) {
                    float moved = (float)(centre[i + k] + steps[same] * noise[k]);
                    rows[same * W + i + k] = mask[i + k] ? moved : 0.0f;
                }
        }
    }
}

/* Sums [n] over `streams` keys of their share times the difference of centre + step d and centre - step d, as floats. The
 * deviates d begin at number `start` of each stream. */
DISPATCH void evolve_difference_sums(const double *centre, const uint64_t *keys, const double *shares, double *sums,
                                     double step, int64_t start, int64_t n, int64_t streams)
{
    float noise[AT_ONCE];
    FOR_PARTS(0, n)
    {
        for (int64_t stream = 0; stream < streams; stream++) {
            normal_part(keys + 2 * stream, start + i, noise, part);
            for (int64_t k = 0; k < part; k++) {
                double moved = step * noise[k];
                float one = (float)(centre[i + k] + moved), other = (float)(centre[i + k] - moved);
                sums[i + k] = sums[i + k] + shares[stream] * ((double)one - (double)other);
            }
        }
    }
}

/* Add `scale` times the deviates of keys[i] to row i of weights [n, W]; write 0 where the mask [n, W] is. */
DISPATCH void evolve_add_noise(float *weights, const uint8_t *mask, const uint64_t *keys, float scale, int64_t n, int64_t W)
{
    float noise[AT_ONCE];
    for (int64_t row = 0; row < n; row++, weights += W, mask += W)
        FOR_PARTS(0, W)
        {
            normal_part(keys + 2 * row, i, noise, part);
            for (int64_t k = 0; k < part; k++) {
                float moved = weights[i + k] + scale * noise[k];
                weights[i + k] = mask[i + k] ? moved : 0.0f;
            }
        }
}
