/* What a first C version of a hebbian-dag step looks like: one slot after another, weights row by row. The bench measures
 * the kernel's speed against it. */
#include <math.h>
#include <stdint.h>

/* sizes [layers + 1]; weights, traces [slots, W]; nodes [sum(sizes)]; sums [W's blocks' columns]; observations [slots, O]. */
void prototype_step(const int64_t *sizes, int64_t layers, int64_t W, int64_t slots, const float *weights, float *traces,
                    float *nodes, float *sums, const float *observations, float rate, float limit)
{
    for (int64_t slot = 0; slot < slots; slot++) {
        const float *w = weights + slot * W;
        float *h = traces + slot * W, *z = sums, *out = nodes + sizes[0];
        for (int64_t o = 0; o < sizes[0]; o++)
            nodes[o] = observations[slot * sizes[0] + o];
        for (int64_t layer = 0; layer < layers; layer++) {
            const int64_t columns = sizes[layer + 1];
            const float *x = nodes;
            for (int64_t k = 0; k < columns; k++)
                out[k] = 0;
            for (int64_t source = 0; source <= layer; source++) {
                for (int64_t k = 0; k < columns; k++)
                    z[k] = 0;
                for (int64_t r = 0; r < sizes[source]; r++)
                    for (int64_t k = 0; k < columns; k++)
                        z[k] += x[r] * w[r * columns + k];
                for (int64_t k = 0; k < columns; k++)
                    out[k] += z[k];
                x += sizes[source];
                w += sizes[source] * columns;
                z += columns;
            }
            for (int64_t k = 0; k < columns; k++)
                out[k] = tanhf(out[k]);
            out += columns;
        }
        z = sums;
        for (int64_t layer = 0; layer < layers; layer++) {
            const float *x = nodes;
            const int64_t columns = sizes[layer + 1];
            for (int64_t source = 0; source <= layer; source++) {
                for (int64_t r = 0; r < sizes[source]; r++)
                    for (int64_t k = 0; k < columns; k++) {
                        float value = h[r * columns + k] + x[r] * z[k] * rate;
                        value = value < -limit ? -limit : value;
                        h[r * columns + k] = value > limit ? limit : value;
                    }
                x += sizes[source];
                h += sizes[source] * columns;
                z += columns;
            }
        }
    }
}
