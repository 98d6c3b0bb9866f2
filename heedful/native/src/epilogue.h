// The epilogue of int8 products: dequantization, bias and activation. Included inside an anonymous namespace, after simd.h.
#pragma once

inline Floats activate(Floats x, int activation) {
    if (activation == RELU) return maximum(x, splat(0.0f));
    return activation == GELU ? gelu(x) : x;
}

inline UInts load_uints(const int32_t* from) {
    UInts x;
    __builtin_memcpy(&x, from, sizeof x);
    return x;
}

// (sum - zero · column sum) · row scale · column scale + bias.
inline Floats dequantize_and_add_bias(UInts sum, UInts column_sum, int32_t zero, float row_scale, Floats column_scale, Floats bias) {
    sum -= column_sum * splat_uint(static_cast<uint32_t>(zero));
    return real(as_ints(sum)) * (splat(row_scale) * column_scale) + bias;
}

// The epilogue of one int8 tile for a block of rows. Kernels may provide
//     bool dot_with_epilogue(bytes, stride, rows, weights, groups, fresh, finish)
// which fuses product and epilogue, and returns false for unsupported numbers of rows; then `dot` writes the sums to memory
// for `store_tile`.
struct Epilogue {
    const float *scales, *bias; // of the tile's outputs
    const int32_t* column_sums;
    const float* row_scales;
    const int32_t* zeros;
    float* to;
    long stride;
    int activation;

    Epilogue(const Linear& linear, const Rows& rows, long row, int tile, float* to, long stride, int activation)
        : scales(linear.scales + tile * long(TILE)), bias(linear.bias + tile * long(TILE)), column_sums(linear.sums + tile * long(TILE)),
          row_scales(rows.scales + row), zeros(rows.zeros + row), to(to), stride(stride), activation(activation) {}

    // Prefetch the data that all rows of a tile share; the hardware prefetcher does not predict these reads.
    void prefetch() const {
        for (int i = 0; i < TILE; i += 16) {
            __builtin_prefetch(scales + i);
            __builtin_prefetch(bias + i);
            __builtin_prefetch(column_sums + i);
        }
    }

    // Finish and store sixteen outputs of a row, starting at `first`.
    template <int ACTIVATION> inline __attribute__((always_inline)) void put(int r, int first, UInts sum) const {
        const Floats x = dequantize_and_add_bias(sum, load_uints(column_sums + first), zeros[r], row_scales[r], load(scales + first), load(bias + first));
        store(to + r * stride + first, activate(x, ACTIVATION));
    }

    void store_tile(const int32_t* sums, int rows) const {
        for (int first = 0; first < TILE; first += LANES) {
            const Floats column_scale = load(scales + first), bias_values = load(bias + first);
            const UInts column_sum = load_uints(column_sums + first);
            for (int r = 0; r < rows; ++r) {
                const Floats x = dequantize_and_add_bias(load_uints(sums + r * TILE + first), column_sum, zeros[r], row_scales[r], column_scale, bias_values);
                store(to + r * stride + first, activate(x, activation));
            }
        }
    }
};
