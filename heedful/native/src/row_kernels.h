// Kernels shared by all instruction sets, written with SIMD vectors. Included inside an anonymous namespace, after `dot` is
// defined.
#pragma once

// Half a tile of a float32 product for some rows, which share the weights that are read.
template <int ROWS>
inline void multiply_half(const float* x, long x_stride, const float* weights, int inputs, const float* bias, float* to, long stride, int activation) {
    Floats sums[ROWS];
    for (int r = 0; r < ROWS; ++r) sums[r] = splat(0.0f);
    for (int i = 0; i < inputs; ++i) {
        const Floats w = load(weights + i * TILE);
        for (int r = 0; r < ROWS; ++r) sums[r] += splat(x[r * x_stride + i]) * w;
    }
    for (int r = 0; r < ROWS; ++r) store(to + r * stride, activate(sums[r] + load(bias), activation));
}

inline void multiply_floats(const Linear& linear, const Rows& rows, long row, int count, int tile, float* to,
                            long stride, int activation) {
#if defined(__AVX2__)
    constexpr int TOGETHER = 4; // as many as there are registers for
#else
    constexpr int TOGETHER = 2;
#endif
    const float* x = rows.values + row * rows.value_stride;
    for (int half = 0; half < TILE; half += LANES) {
        const float* weights = linear.floats + static_cast<long>(tile) * linear.padded_inputs * TILE + half;
        const float* bias = linear.bias + static_cast<long>(tile) * TILE + half;
        int r = 0;
        for (; r + TOGETHER <= count; r += TOGETHER)
            multiply_half<TOGETHER>(x + r * rows.value_stride, rows.value_stride, weights, linear.inputs, bias, to + r * stride + half, stride, activation);
        for (; r < count; ++r) multiply_half<1>(x + r * rows.value_stride, 0, weights, linear.inputs, bias, to + r * stride + half, stride, activation);
    }
}

// One tile of int8 weights as floats without their scales: [input][32].
void widen_tile(const int8_t* weights, int groups, float* to) {
    for (int g = 0; g < groups; ++g)
        for (int half = 0; half < TILE; half += LANES) {
            const UInts four = load_uints(reinterpret_cast<const int32_t*>(weights + (g * TILE + half) * 4));
            for (int i = 0; i < 4; ++i) store(to + (4 * g + i) * TILE + half, real(as_ints(four << (24 - 8 * i)) >> 24));
        }
}

// One tile of the product of float32 rows with float32 or int8 weights; nothing is quantized. `scratch` holds a tile.
void multiply_float_rows(const Linear& linear, const float* values, long value_stride, long num_rows, int tile, float* scratch, float* to, long stride) {
    Rows rows;
    rows.values = values, rows.value_stride = value_stride;
    const int count = static_cast<int>(num_rows);
    if (linear.floats) return multiply_floats(linear, rows, 0, count, tile, to, stride, NO_ACTIVATION);
    const float zeros[TILE] = {};
    Linear widened = linear;
    widened.floats = scratch, widened.bias = zeros;
    widen_tile(linear.weights + static_cast<long>(tile) * linear.padded_inputs * TILE, linear.padded_inputs / 4, scratch);
    multiply_floats(widened, rows, 0, count, 0, to, stride, NO_ACTIVATION);
    for (long row = 0; row < num_rows; ++row)
        for (int half = 0; half < TILE; half += LANES) {
            float* output = to + row * stride + half;
            const long column = static_cast<long>(tile) * TILE + half;
            store(output, load(output) * load(linear.scales + column) + load(linear.bias + column));
        }
}

void multiply(const Linear& linear, const Rows& rows, Block block, float* to, long stride, int activation) {
    const long tile_size = static_cast<long>(linear.padded_inputs) * TILE;
    alignas(64) int32_t sums[MAX_ROWS * TILE];
    begin_tiles(block.end_row - block.first_row);
    for (int tile = block.first_tile; tile < block.end_tile; ++tile) {
        float* column = to + static_cast<long>(tile - block.first_tile) * TILE;
        for (long row = block.first_row; row < block.end_row; row += ROWS_PER_CALL) {
            int count = block.end_row - row < ROWS_PER_CALL ? static_cast<int>(block.end_row - row) : ROWS_PER_CALL;
            float* output = column + (row - block.first_row) * stride;
            if (linear.floats) {
                multiply_floats(linear, rows, row, count, tile, output, stride, activation);
                continue;
            }
            const uint8_t* bytes = rows.bytes + row * rows.byte_stride;
            const int8_t* weights = linear.weights + tile * tile_size;
            const Epilogue finish(linear, rows, row, tile, output, stride, activation);
            const int groups = linear.padded_inputs / 4;
            const bool fresh = row == block.first_row;
            if (fresh) finish.prefetch();
            if (dot_with_epilogue(bytes, rows.byte_stride, count, weights, groups, fresh, finish)) continue;
            dot(bytes, rows.byte_stride, count, weights, groups, fresh, sums);
            finish.store_tile(sums, count);
        }
    }
    end_tiles(block.end_row - block.first_row);
}

void find_nonzero_inputs(const uint8_t* bytes, long stride, int count, NonzeroInputs& to) {
    int found = 0;
#if defined(__AVX512F__)
    __m512i indices = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    for (int i = 0; i < count; i += STEP, indices = _mm512_add_epi32(indices, _mm512_set1_epi32(STEP))) {
        __m512i wide[MAX_SPARSE_ROWS], any = _mm512_setzero_si512();
        for (int r = 0; r < to.rows; ++r) {
            wide[r] = _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes + r * stride + i)));
            any = _mm512_or_si512(any, wide[r]);
        }
        const __mmask16 which = _mm512_test_epi32_mask(any, any);
        _mm512_storeu_si512(to.indices + found, _mm512_maskz_compress_epi32(which, indices));
        for (int r = 0; r < to.rows; ++r) {
            const __m128i narrow = _mm512_cvtepi32_epi8(_mm512_maskz_compress_epi32(which, wide[r]));
            _mm_storeu_si128(reinterpret_cast<__m128i*>(to.bytes + r * to.stride + found), narrow);
        }
        found += __builtin_popcount(which);
    }
#else
    for (int i = 0; i < count; ++i) { // branchless: a branch would be unpredictable
        uint8_t any = 0;
        for (int r = 0; r < to.rows; ++r) any |= to.bytes[r * to.stride + found] = bytes[r * stride + i];
        to.indices[found] = i;
        found += any != 0;
    }
#endif
    to.count = (found + 3) / 4 * 4;
    for (int i = found; i < to.count + NonzeroInputs::AHEAD; ++i) to.indices[i] = 0;
    for (int r = 0; r < to.rows; ++r)
        for (int i = found; i < to.count; ++i) to.bytes[r * to.stride + i] = 0;
}

void multiply_nonzero(const Linear& linear, const Rows& rows, const NonzeroInputs& nonzero, int first_span, int end_span, float* to,
                     long to_stride) {
    constexpr int TILES = SPAN / TILE;
    const int spans = end_span - first_span;
    alignas(64) int32_t sums[MAX_SPARSE_ROWS * MAX_SPANS * SPAN];
    dot_nonzero(nonzero, linear.input_major + first_span * SPAN, static_cast<long>(linear.num_spans) * SPAN, spans, sums);
    for (int row = 0; row < nonzero.rows; ++row)
        for (int tile = first_span * TILES; tile < end_span * TILES && tile < linear.num_tiles; ++tile)
            Epilogue(linear, rows, row, tile, to + row * to_stride + tile * TILE, 0, NO_ACTIVATION)
                .store_tile(sums + row * spans * SPAN + (tile - first_span * TILES) * TILE, 1);
}

#if defined(__AVX2__)
// Quantize weights to -1.5, -0.5, 0.5 and 1.5 steps. The thresholds assume normally distributed weights; the step size is
// then the least-squares fit.
void sketch_tile(const int8_t* weights, int groups, uint8_t* codes, int32_t* sums, float* half_steps) {
    constexpr int WIDTH = 4 * TILE;
    int32_t sizes[WIDTH] = {}, code_sums[WIDTH] = {}, products[WIDTH] = {}, outer[WIDTH] = {};
    int8_t bounds[WIDTH];
    for (int g = 0; g < groups; ++g)
        for (int i = 0; i < WIDTH; ++i) sizes[i] += weights[g * WIDTH + i] < 0 ? -weights[g * WIDTH + i] : weights[g * WIDTH + i];
    for (int i = 0; i < WIDTH; ++i) {
        const int32_t *four = sizes + i / 4 * 4, size = four[0] + four[1] + four[2] + four[3];
        const int32_t bound = (5 * size + 8 * groups) / (16 * groups); // 1.25 times the mean, rounded
        bounds[i] = static_cast<int8_t>(bound < 1 ? 1 : bound > 127 ? 127 : bound);
    }
    for (int g = 0; g < groups; g += 4)
        for (int i = 0; i < WIDTH; ++i) {
            int32_t together = 0;
            for (int part = 0; part < 4; ++part) {
                const int32_t weight = weights[(g + part) * WIDTH + i], bound = bounds[i];
                const int32_t code = (weight >= -bound) + (weight >= 0) + (weight >= bound);
                together |= code << 2 * part;
                code_sums[i] += code;
                products[i] += weight * (2 * code - 3);
                outer[i] += (weight < -bound) + (weight >= bound);
            }
            codes[g / 4 * WIDTH + i] = static_cast<uint8_t>(together);
        }
    for (int output = 0; output < TILE; ++output) {
        int32_t sum = 0, product = 0, squares = 4 * groups;
        for (int i = 4 * output; i < 4 * output + 4; ++i) sum += code_sums[i], product += products[i], squares += 8 * outer[i];
        sums[output] = sum;
        half_steps[output] = static_cast<float>(product) / static_cast<float>(squares);
    }
}

void multiply_sketch(const Linear& linear, const Sketch& sketch, const Rows& rows, long row, int first_tile, int end_tile, float* to) {
    const uint8_t* bytes = rows.bytes + row * rows.byte_stride;
    const int32_t zero = rows.zeros[row];
    int32_t threefold = 0; // Σ 3 · (byte - zero): the offset of 1.5 steps, in half steps
    for (int i = 0; i < linear.padded_inputs; ++i) threefold += 3 * (bytes[i] - zero);
    alignas(64) int32_t sums[TILE];
    for (int tile = first_tile; tile < end_tile; ++tile) {
        const long column = static_cast<long>(tile) * TILE;
        dot_codes(bytes, sketch.codes + column * (linear.padded_inputs / 4), linear.padded_inputs / 4, sums);
        for (int half = 0; half < TILE; half += LANES) {
            UInts total = load_uints(sums + half);
            total = (total - load_uints(sketch.sums + column + half) * splat_uint(static_cast<uint32_t>(zero))) * splat_uint(2) - splat_uint(static_cast<uint32_t>(threefold));
            const Floats x = real(as_ints(total)) * (splat(rows.scales[row]) * load(sketch.half_steps + column + half));
            store(to + (tile - first_tile) * TILE + half, x + load(linear.bias + column + half));
        }
    }
}
#endif

// x ≈ scale · (byte - zero); 0 is represented exactly.
void quantize(const float* from, int count, int padded, uint8_t* bytes, float* scale, int32_t* zero) {
    Floats low = splat(0.0f), high = splat(0.0f);
    int i = 0;
    for (; i + LANES <= count; i += LANES) {
        Floats x = load(from + i);
        low = minimum(low, x);
        high = maximum(high, x);
    }
    if (i < count) {
        Floats x = load_partial(from + i, count - i, 0.0f);
        low = minimum(low, x);
        high = maximum(high, x);
    }
    const float lowest = -reduce_max(-low), range = reduce_max(high) - lowest;
    *scale = range > 1e-30f ? range / 255.0f : 1.0f;
    const float inverse = 1.0f / *scale;
    const Floats zero_point = nearest(splat(-lowest * inverse));
    *zero = static_cast<int32_t>(zero_point[0]);
    const Floats factor = splat(inverse);
    auto put = [&](int offset, Floats x) {
        const Floats q = minimum(nearest(x * factor) + zero_point, splat(255.0f)); // never negative: the minimum is rounded like the zero point
        const Bytes narrow = to_bytes(to_ints(q));
        __builtin_memcpy(bytes + offset, &narrow, sizeof narrow);
    };
    for (i = 0; i + LANES <= count; i += LANES) put(i, load(from + i));
    for (; i < padded; i += LANES) put(i, load_partial(from + i, count > i ? count - i : 0, 0.0f));
}

void normalize(const float* from, int count, const Norm& norm, float* to, float* statistics) {
    float mean = 0.0f;
    Floats total = splat(0.0f);
    int i = 0;
    if (!norm.only_scale) {
        for (; i + LANES <= count; i += LANES) total += load(from + i);
        if (i < count) total += load_partial(from + i, count - i, 0.0f);
        mean = reduce_add(total) / static_cast<float>(count);
    }
    Floats squares = splat(0.0f);
    for (i = 0; i + LANES <= count; i += LANES) {
        Floats x = load(from + i) - splat(mean);
        squares += x * x;
    }
    if (i < count) {
        Floats x = load_partial(from + i, count - i, mean) - splat(mean);
        squares += x * x;
    }
    const float deviation = __builtin_sqrtf(reduce_add(squares) / static_cast<float>(count) + norm.epsilon);
    if (statistics) statistics[0] = mean, statistics[1] = deviation;
    const Floats scale = splat(1.0f / deviation), centre = splat(mean);
    for (i = 0; i < count; i += LANES) {
        const int left = count - i;
        const bool full = left >= LANES;
        Floats x = full ? load(from + i) : load_partial(from + i, left, 0.0f);
        Floats y = (x - centre) * scale * (full ? load(norm.weight + i) : load_partial(norm.weight + i, left, 0.0f));
        if (norm.bias) y += full ? load(norm.bias + i) : load_partial(norm.bias + i, left, 0.0f);
        if (full) store(to + i, y);
        else store_partial(to + i, y, left);
    }
}

void add(float* to, const float* from, int count) {
    int i = 0;
    for (; i + LANES <= count; i += LANES) store(to + i, load(to + i) + load(from + i));
    for (; i < count; ++i) to[i] += from[i];
}

void embed(const float* row, float scale, const float* position, int count, float* to) {
    for (int i = 0; i < count; ++i) to[i] = row[i] * scale;
    if (position) add(to, position, count);
}

// Rotary positions: rotate each pair of features; `turns` holds the cosine and sine of each pair.
// From scalar code GCC would generate a fused instruction (vfmaddsub) in spite of -ffp-contract=off.
void rotate(float* heads, int num_heads, int head_dim, const float* turns) {
    const Four signs = {-1.0f, 1.0f, -1.0f, 1.0f};
    for (int head = 0; head < num_heads; ++head) {
        float* x = heads + head * head_dim;
        for (int i = 0; i < head_dim; i += 4) {
            const unsigned size = (head_dim - i >= 4 ? 4 : 2) * sizeof(float);
            Four pairs{}, turn{};
            __builtin_memcpy(&pairs, x + i, size);
            __builtin_memcpy(&turn, turns + i, size);
            const Four cosines = {turn[0], turn[0], turn[2], turn[2]}, sines = {turn[1], turn[1], turn[3], turn[3]};
            const Four swapped = {pairs[1], pairs[0], pairs[3], pairs[2]};
            const Four turned = pairs * cosines + swapped * (sines * signs);
            __builtin_memcpy(x + i, &turned, size);
        }
    }
}

void gate(const float* inner, const float* gates, int count, float* to) {
    for (int i = 0; i < count; i += LANES) {
        const int left = count - i;
        if (left >= LANES) store(to + i, silu(load(gates + i)) * load(inner + i));
        else store_partial(to + i, silu(load_partial(gates + i, left, 0.0f)) * load_partial(inner + i, left, 0.0f), left);
    }
}

// Softmax of N heads, interleaved to hide latency; the lanes past `count` become zero.
template <int N> inline void softmax(float* scores, long stride, int count) {
    static const float numbers[LANES] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    const int last = (count - 1) / LANES * LANES;
    const Floats lanes = load(numbers), left = splat(static_cast<float>(count - last)), nothing = splat(-__builtin_inff());
    Floats most[N], total[N];
    for (int n = 0; n < N; ++n) {
        float* tail = scores + n * stride + last;
        most[n] = select_less(lanes, left, load(tail), nothing);
        store(tail, most[n]);
        total[n] = splat(0.0f);
    }
    for (int t = 0; t < last; t += LANES)
        for (int n = 0; n < N; ++n) most[n] = maximum(most[n], load(scores + n * stride + t));
    for (int n = 0; n < N; ++n) most[n] = splat(reduce_max(most[n]));
    for (int t = 0; t <= last; t += LANES)
        for (int n = 0; n < N; ++n) {
            const Floats x = exp_nonpositive(load(scores + n * stride + t) - most[n]);
            total[n] += x;
            store(scores + n * stride + t, x);
        }
    for (int n = 0; n < N; ++n) total[n] = splat(1.0f / reduce_add(total[n]));
    for (int t = 0; t <= last; t += LANES)
        for (int n = 0; n < N; ++n) store(scores + n * stride + t, load(scores + n * stride + t) * total[n]);
}

// Four horizontal sums at once, each in the order of `reduce_add`.
inline Four four_sums(Floats a, Floats b, Floats c, Floats d) {
    const Eight a8 = low_half(a) + high_half(a), b8 = low_half(b) + high_half(b);
    const Eight c8 = low_half(c) + high_half(c), d8 = low_half(d) + high_half(d);
    const Four a4 = low_half(a8) + high_half(a8), b4 = low_half(b8) + high_half(b8);
    const Four c4 = low_half(c8) + high_half(c8), d4 = low_half(d8) + high_half(d8);
    const Four ab = zip_low(a4, b4) + zip_high(a4, b4), cd = zip_low(c4, d4) + zip_high(c4, d4); // lanes 0 + 2 and 1 + 3 of each
    return join_low(ab, cd) + join_high(ab, cd);
}

// Keys and values are stored as float32 or bfloat16.
inline Floats load_cached(const float* from) { return load(from); }
inline Floats load_cached(const uint16_t* from) {
#if defined(__AVX512F__) // compilers do not generate this instruction
    const __m256i halves = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
    const __m512i bits = _mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16);
#else
    Halves halves;
    __builtin_memcpy(&halves, from, sizeof halves);
    const UInts bits = to_uints(halves) << 16;
#endif
    Floats x;
    __builtin_memcpy(&x, &bits, sizeof x);
    return x;
}

template <class Element> inline Floats load_cached_partial(const Element* from, int count) {
    Element all[LANES] = {};
    for (int i = 0; i < count; ++i) all[i] = from[i];
    return load_cached(all);
}

// Round to bfloat16, halves to even.
inline Halves round_to_bfloat16(Floats x) {
    UInts bits;
    __builtin_memcpy(&bits, &x, sizeof bits);
    bits = (bits + splat_uint(0x7FFF) + ((bits >> 16) & splat_uint(1))) >> 16;
#if defined(__AVX512F__)
    return (Halves)_mm512_cvtepi32_epi16((__m512i)bits);
#else
    return to_halves(bits);
#endif
}

void to_bfloat16(const float* from, int count, uint16_t* to) {
    int i = 0;
    for (; i + LANES <= count; i += LANES) {
        const Halves halves = round_to_bfloat16(load(from + i));
        __builtin_memcpy(to + i, &halves, sizeof halves);
    }
    if (i == count) return;
    const Halves halves = round_to_bfloat16(load_partial(from + i, count - i, 0.0f));
    for (int rest = 0; i < count; ++i, ++rest) to[i] = halves[rest];
}

// Up to QUERIES rows that attend to the same positions; the result of a row does not depend on the others.
struct QueryRows {
    const float* queries;
    long query_stride;
    float* scores; // of each query and head
    float* to;
    long to_stride;
};

// Scores of one head's queries for four keys; prefetches the next four.
template <int QUERIES, class Element>
inline void score_four_keys(const QueryRows& query_rows, const AttentionArguments& a, const Element* const keys[4], const Element* const next[4], int head, int t) {
    Floats sums[QUERIES][4];
#pragma GCC unroll 4
    for (int n = 0; n < QUERIES; ++n)
        for (int k = 0; k < 4; ++k) sums[n][k] = splat(0.0f);
    const long first = static_cast<long>(head) * a.head_dim;
    for (int i = 0; i < a.head_dim; i += LANES) {
        const int left = a.head_dim - i;
        Floats q[QUERIES];
#pragma GCC unroll 4
        for (int n = 0; n < QUERIES; ++n) {
            const float* query = query_rows.queries + n * query_rows.query_stride + first + i;
            q[n] = left >= LANES ? load(query) : load_partial(query, left, 0.0f);
        }
#pragma GCC unroll 4
        for (int k = 0; k < 4; ++k) {
            const Element* address = keys[k] + first + i;
            const Floats key = left >= LANES ? load_cached(address) : load_cached_partial(address, left);
#pragma GCC unroll 4
            for (int n = 0; n < QUERIES; ++n) sums[n][k] += q[n] * key;
            __builtin_prefetch(next[k] + first + i);
        }
    }
#pragma GCC unroll 4
    for (int n = 0; n < QUERIES; ++n) {
        const Four found = four_sums(sums[n][0], sums[n][1], sums[n][2], sums[n][3]) * Four{a.scale, a.scale, a.scale, a.scale};
        __builtin_memcpy(query_rows.scores + (n * a.num_heads + head) * a.score_stride + t, &found, sizeof found);
    }
}

// Add four values of one head, weighted by each query's attention weights, to the output.
template <int QUERIES, class Element>
inline void add_four_values(const QueryRows& query_rows, const AttentionArguments& a, const Element* const values[4], const Element* const next[4], int head, int t) {
    const long first = static_cast<long>(head) * a.head_dim;
    for (int i = 0; i < a.head_dim; i += LANES) {
        const int left = a.head_dim - i;
        const bool full = left >= LANES;
        Floats sums[QUERIES];
#pragma GCC unroll 4
        for (int n = 0; n < QUERIES; ++n) {
            const float* output = query_rows.to + n * query_rows.to_stride + first + i;
            sums[n] = t == 0 ? splat(0.0f) : full ? load(output) : load_partial(output, left, 0.0f);
        }
#pragma GCC unroll 4
        for (int k = 0; k < 4; ++k) {
            const Element* address = values[k] + first + i;
            const Floats value = full ? load_cached(address) : load_cached_partial(address, left);
#pragma GCC unroll 4
            for (int n = 0; n < QUERIES; ++n)
                sums[n] += splat(query_rows.scores[(n * a.num_heads + head) * a.score_stride + t + k]) * value;
            __builtin_prefetch(next[k] + first + i);
        }
#pragma GCC unroll 4
        for (int n = 0; n < QUERIES; ++n) {
            float* output = query_rows.to + n * query_rows.to_stride + first + i;
            if (full) store(output, sums[n]);
            else store_partial(output, sums[n], left);
        }
    }
}

// Addresses of four positions starting at t; past the end, the address of the last position.
template <class Element> inline void locate_four(const AttentionArguments& a, int t, const Element* from, const Element** rows) {
    for (int i = 0; i < 4; ++i) rows[i] = from + a.offsets[t + i < a.count ? t + i : a.count - 1];
}

// The scores of all heads. Keys and values are read position by position, in memory order. The last group of four may repeat
// a position: softmax gives zero weight to everything past the count. `next` holds the first four keys, then values.
template <int QUERIES, class Element>
inline void score_keys(const QueryRows& query_rows, const AttentionArguments& a, const Element* next[4]) {
    const Element *rows[4], *keys = static_cast<const Element*>(a.keys), *values = keys + a.value_shift;
    for (int t = 0; t < a.count; t += 4) {
        for (int i = 0; i < 4; ++i) rows[i] = next[i];
        const bool last = t + 4 >= a.count;
        locate_four(a, last ? 0 : t + 4, last ? values : keys, next);
        for (int head = 0; head < a.num_heads; ++head) score_four_keys<QUERIES>(query_rows, a, rows, next, head, t);
    }
}

inline void softmax_heads(float* scores, int num_heads, long stride, int count) {
    int head = 0;
    for (; head + 4 <= num_heads; head += 4) softmax<4>(scores + head * stride, stride, count);
    for (; head < num_heads; ++head) softmax<1>(scores + head * stride, stride, count);
}

// The sums of the values, weighted by the softmax of the scores. `next` holds the first four values.
template <int QUERIES, class Element>
inline void add_values(const QueryRows& query_rows, const AttentionArguments& a, const Element* next[4]) {
    const Element *rows[4], *values = static_cast<const Element*>(a.keys) + a.value_shift;
    for (int t = 0; t < a.count; t += 4) {
        for (int i = 0; i < 4; ++i) rows[i] = next[i];
        locate_four(a, t + 4, values, next);
        for (int head = 0; head < a.num_heads; ++head) add_four_values<QUERIES>(query_rows, a, rows, next, head, t);
    }
}

// Attention of QUERIES queries.
template <int QUERIES, class Element> inline void attend_to(const QueryRows& query_rows, const AttentionArguments& a) {
    const Element* next[4];
    locate_four(a, 0, static_cast<const Element*>(a.keys), next);
    score_keys<QUERIES>(query_rows, a, next);
    softmax_heads(query_rows.scores, QUERIES * a.num_heads, a.score_stride, a.count);
    add_values<QUERIES>(query_rows, a, next);
}

template <class Element> inline void attend_all(QueryRows query_rows, int count, const AttentionArguments& a) {
    while (count > 0) {
        const int together = count >= 4 ? 4 : count >= 2 ? 2 : 1;
        if (together == 4) attend_to<4, Element>(query_rows, a);
        else if (together == 2) attend_to<2, Element>(query_rows, a);
        else attend_to<1, Element>(query_rows, a);
        query_rows.queries += together * query_rows.query_stride;
        query_rows.to += together * query_rows.to_stride;
        count -= together;
    }
}

void attend(const float* queries, long query_stride, int count, const AttentionArguments& a, float* scores, float* to, long to_stride) {
    if (a.is_bfloat16) attend_all<uint16_t>({queries, query_stride, scores, to, to_stride}, count, a);
    else attend_all<float>({queries, query_stride, scores, to, to_stride}, count, a);
}

// The steps of `attend` for one query over float32 keys and values.
void attention_scores(const float* query, const AttentionArguments& a, float* scores) {
    const float* next[4];
    locate_four(a, 0, static_cast<const float*>(a.keys), next);
    score_keys<1>({query, 0, scores, nullptr, 0}, a, next);
}

void attention_values(float* weights, const AttentionArguments& a, float* to) {
    const float* next[4];
    locate_four(a, 0, static_cast<const float*>(a.keys) + a.value_shift, next);
    add_values<1>({nullptr, 0, weights, to, 0}, a, next);
}

void attention_softmax(float* scores, int num_heads, long stride, int count) { softmax_heads(scores, num_heads, stride, count); }

void apply_activation(float* values, int count, int activation) {
    for (int i = 0; i < count; i += LANES) {
        const int left = count - i;
        if (left >= LANES) store(values + i, activate(load(values + i), activation));
        else store_partial(values + i, activate(load_partial(values + i, left, 0.0f), activation), left);
    }
}

void scan(const float* logits, int count, float* largest, float* sum) {
    constexpr int N = 4;
    const float nothing = -__builtin_inff();
    Floats x[N], most[N] = {splat(nothing), splat(nothing), splat(nothing), splat(nothing)}, total = splat(0.0f);
    int i = 0;
    for (; i + N * LANES <= count; i += N * LANES)
        for (int n = 0; n < N; ++n) most[n] = maximum(load(logits + i + n * LANES), most[n]);
    for (; i < count; i += LANES)
        most[0] = maximum(i + LANES <= count ? load(logits + i) : load_partial(logits + i, count - i, nothing), most[0]);
    *largest = reduce_max(maximum(maximum(most[0], most[1]), maximum(most[2], most[3])));
    const Floats centre = splat(*largest);
    for (i = 0; i + N * LANES <= count; i += N * LANES) {
        for (int n = 0; n < N; ++n) x[n] = load(logits + i + n * LANES) - centre;
        total = add_exp<N>(total, x);
    }
    for (; i < count; i += LANES) {
        x[0] = (i + LANES <= count ? load(logits + i) : load_partial(logits + i, count - i, nothing)) - centre;
        total = add_exp<1>(total, x);
    }
    *sum = reduce_add(total);
}

inline void insert(float value, int32_t token, Candidate* best, int keep) {
    int rank = keep;
    while (rank > 0 && (value > best[rank - 1].value || (value == best[rank - 1].value && token < best[rank - 1].token)))
        --rank;
    if (rank == keep) return;
    for (int i = keep - 1; i > rank; --i) best[i] = best[i - 1];
    best[rank] = Candidate{value, token};
}

// A bit mask of the sixteen numbers that are at least `floor`.
inline uint32_t lanes_at_least(const float* from, float floor) {
#if defined(__AVX512F__)
    return _mm512_cmp_ps_mask(_mm512_loadu_ps(from), _mm512_set1_ps(floor), _CMP_GE_OQ);
#elif defined(__AVX2__)
    const __m256 least = _mm256_set1_ps(floor);
    const int left = _mm256_movemask_ps(_mm256_cmp_ps(_mm256_loadu_ps(from), least, _CMP_GE_OQ));
    const int right = _mm256_movemask_ps(_mm256_cmp_ps(_mm256_loadu_ps(from + 8), least, _CMP_GE_OQ));
    return static_cast<uint32_t>(left) | static_cast<uint32_t>(right) << 8;
#else
    uint32_t found = 0;
    for (int i = 0; i < LANES; ++i) found |= static_cast<uint32_t>(from[i] >= floor) << i;
    return found;
#endif
}

// A lower bound of the `keep` largest logits, from the maxima of the lanes.
inline float lower_bound_of_top(const float* logits, int count, int keep) {
    const float nothing = -__builtin_inff();
    if (keep > LANES) return nothing;
    Floats most = splat(nothing);
    for (int i = 0; i + LANES <= count; i += LANES) most = maximum(load(logits + i), most);
    float sorted[LANES + 1];
    int filled = 0;
    for (int lane = 0; lane < LANES; ++lane) {
        int rank = filled < keep ? filled++ : keep;
        for (; rank > 0 && sorted[rank - 1] < most[lane]; --rank) sorted[rank] = sorted[rank - 1];
        sorted[rank] = most[lane];
    }
    return sorted[keep - 1];
}

void choose(const float* logits, int count, int32_t first_token, Candidate* best, int keep) {
    const float nothing = -__builtin_inff();
    float floor = best[keep - 1].token < 0 ? lower_bound_of_top(logits, count, keep) : best[keep - 1].value;
    auto consider = [&](int i) {
        if (!(logits[i] > nothing && logits[i] >= best[keep - 1].value)) return;
        insert(logits[i], first_token + i, best, keep);
        if (best[keep - 1].value > floor) floor = best[keep - 1].value;
    };
    int i = 0;
    for (; i + LANES <= count; i += LANES)
        for (uint32_t lanes = lanes_at_least(logits + i, floor); lanes; lanes &= lanes - 1) consider(i + __builtin_ctz(lanes));
    for (; i < count; ++i) consider(i);
}
