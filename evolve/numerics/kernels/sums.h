/* The weighted sums of a layer. Columns are computed side by side, to hide the latency of the chain of additions. */
#define ABREAST 4

/* z[k] = x[0]*w[0,k] + x[1]*w[1,k] + ... for `width` columns from k on, in that order. */
INLINE void column_sums(const float *x, const float *w, float *z, int64_t rows, int64_t columns, int width)
{
    float total[ABREAST][LANES];
    for (int k = 0; k < width; k++)
        for (int t = 0; t < LANES; t++)
            total[k][t] = x[t] * w[k * LANES + t];
    for (int64_t r = 1; r < rows; r++)
        for (int k = 0; k < width; k++)
            for (int t = 0; t < LANES; t++)
                total[k][t] = total[k][t] + x[r * LANES + t] * w[(r * columns + k) * LANES + t];
    for (int k = 0; k < width; k++)
        for (int t = 0; t < LANES; t++)
            z[k * LANES + t] = total[k][t];
}

/* z = x W for W [rows, columns]. */
INLINE void weighted_sums(const float *x, const float *w, float *z, int64_t rows, int64_t columns)
{
    int64_t k = 0;
    for (; k + ABREAST <= columns; k += ABREAST)
        column_sums(x, w + k * LANES, z + k * LANES, rows, columns, ABREAST);
    for (; k < columns; k++)
        column_sums(x, w + k * LANES, z + k * LANES, rows, columns, 1);
}

/* The same with weights w + g h; each connection has its own g, or each slot `one` for all. */
INLINE void plastic_column_sums(const float *x, const float *w, const float *h, const float *g, float *z,
                                int64_t rows, int64_t columns, int width, int one)
{
    float total[ABREAST][LANES] = {{0}};
    for (int64_t r = 0; r < rows; r++)
        for (int k = 0; k < width; k++) {
            const int64_t at = (r * columns + k) * LANES;
            for (int t = 0; t < LANES; t++) {
                float weight = w[at + t] + g[one ? t : at + t] * h[at + t];
                float product = x[r * LANES + t] * weight;
                total[k][t] = r ? total[k][t] + product : product;
            }
        }
    for (int k = 0; k < width; k++)
        for (int t = 0; t < LANES; t++)
            z[k * LANES + t] = total[k][t];
}

/* z = x (W + G H), elementwise in G and H, which are [rows, columns] too. */
INLINE void plastic_sums(const float *x, const float *w, const float *h, const float *g, float *z,
                         int64_t rows, int64_t columns)
{
    int64_t k = 0;
    for (; k + ABREAST <= columns; k += ABREAST)
        plastic_column_sums(x, w + k * LANES, h + k * LANES, g + k * LANES, z + k * LANES, rows, columns, ABREAST, 0);
    for (; k < columns; k++)
        plastic_column_sums(x, w + k * LANES, h + k * LANES, g + k * LANES, z + k * LANES, rows, columns, 1, 0);
}

/* z = x (W + g H), one g for all connections. */
INLINE void modulated_sums(const float *x, const float *w, const float *h, const float *g, float *z,
                           int64_t rows, int64_t columns)
{
    int64_t k = 0;
    for (; k + ABREAST <= columns; k += ABREAST)
        plastic_column_sums(x, w + k * LANES, h + k * LANES, g, z + k * LANES, rows, columns, ABREAST, 1);
    for (; k < columns; k++)
        plastic_column_sums(x, w + k * LANES, h + k * LANES, g, z + k * LANES, rows, columns, 1, 1);
}
