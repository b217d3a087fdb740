/* The weighted sums of a layer, as every network makes them. */
#define ABREAST 2 /* outputs computed side by side, to hide the latency of the chain of additions */

/* z[k] = x[0]*w[0,k] + x[1]*w[1,k] + ... for `width` outputs from k on, in that order. */
INLINE void weighted_sums(const float *x, const float *w, const float *h, const float *g, float *z,
                          int64_t rows, int64_t columns, int width)
{
    float total[ABREAST][LANES] = {{0}};
    for (int64_t r = 0; r < rows; r++)
        for (int k = 0; k < width; k++) {
            const int64_t at = (r * columns + k) * LANES;
            for (int t = 0; t < LANES; t++) {
                float weight = w[at + t];
                if (g)
                    weight = weight + g[at + t] * h[at + t];
                float product = x[r * LANES + t] * weight;
                total[k][t] = r ? total[k][t] + product : product;
            }
        }
    for (int k = 0; k < width; k++)
        for (int t = 0; t < LANES; t++)
            z[k * LANES + t] = total[k][t];
}

INLINE void forward_block(const float *x, const float *w, const float *h, const float *g, float *z,
                          int64_t rows, int64_t columns)
{
    int64_t k = 0;
    for (; k + ABREAST <= columns; k += ABREAST)
        weighted_sums(x, w + k * LANES, h + k * LANES, g ? g + k * LANES : 0, z + k * LANES, rows, columns, ABREAST);
    for (; k < columns; k++)
        weighted_sums(x, w + k * LANES, h + k * LANES, g ? g + k * LANES : 0, z + k * LANES, rows, columns, 1);
}
