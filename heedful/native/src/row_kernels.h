// The kernels that all instruction sets share, in lanes. Included inside an anonymous namespace, after `dot` is defined.
#pragma once

inline Floats activated(Floats x, int activation) {
    if (activation == RELU) return larger(x, splat(0.0f));
    return activation == GELU ? gelu(x) : x;
}

// (sums - zero · column sums) · row scale · column scale + bias, of the rows that met one int8 tile.
inline void finish_tile(const Linear& linear, const Rows& rows, long row, int count, long column, const int32_t* sums,
                        float* to, long stride, int activation) {
    for (int half = 0; half < TILE; half += LANES) {
        const Floats scales = load(linear.scales + column + half), bias = load(linear.bias + column + half);
        Words column_sums;
        __builtin_memcpy(&column_sums, linear.sums + column + half, sizeof column_sums);
        for (int r = 0; r < count; ++r) {
            Words total;
            __builtin_memcpy(&total, sums + r * TILE + half, sizeof total);
            total -= column_sums * static_cast<uint32_t>(rows.zeros[row + r]);
            Floats x = real((Ints)total) * (splat(rows.scales[row + r]) * scales) + bias;
            store(to + r * stride + half, activated(x, activation));
        }
    }
}

inline void multiply_floats(const Linear& linear, const Rows& rows, long row, int count, int tile, float* to,
                            long stride, int activation) {
    const float* weights = linear.floats + static_cast<long>(tile) * linear.padded_inputs * TILE;
    for (int r = 0; r < count; ++r) {
        const float* x = rows.values + (row + r) * rows.value_stride;
        Floats left = splat(0.0f), right = splat(0.0f);
        for (int i = 0; i < linear.inputs; ++i) {
            left += splat(x[i]) * load(weights + i * TILE);
            right += splat(x[i]) * load(weights + i * TILE + LANES);
        }
        const float* bias = linear.bias + static_cast<long>(tile) * TILE;
        store(to + r * stride, activated(left + load(bias), activation));
        store(to + r * stride + LANES, activated(right + load(bias + LANES), activation));
    }
}

void multiply(const Linear& linear, const Rows& rows, Block block, float* to, long stride, int activation) {
    const long tile_size = static_cast<long>(linear.padded_inputs) * TILE;
    alignas(64) int32_t sums[MOST_ROWS * TILE];
    for (int tile = block.first_tile; tile < block.end_tile; ++tile) {
        float* column = to + static_cast<long>(tile - block.first_tile) * TILE;
        for (long row = block.first_row; row < block.end_row; row += MOST_ROWS) {
            int count = block.end_row - row < MOST_ROWS ? static_cast<int>(block.end_row - row) : MOST_ROWS;
            float* place = column + (row - block.first_row) * stride;
            if (linear.floats) {
                multiply_floats(linear, rows, row, count, tile, place, stride, activation);
                continue;
            }
            dot(rows.bytes + row * rows.byte_stride, rows.byte_stride, count, linear.weights + tile * tile_size,
                linear.padded_inputs / 4, sums);
            finish_tile(linear, rows, row, count, static_cast<long>(tile) * TILE, sums, place, stride, activation);
        }
    }
}

// x ≈ scale · (byte - zero), with 0 among the numbers that are met exactly.
void quantise(const float* from, int count, int padded, uint8_t* bytes, float* scale, int32_t* zero) {
    Floats low = splat(0.0f), high = splat(0.0f);
    int i = 0;
    for (; i + LANES <= count; i += LANES) {
        Floats x = load(from + i);
        low = smaller(low, x);
        high = larger(high, x);
    }
    if (i < count) {
        Floats x = load_part(from + i, count - i, 0.0f);
        low = smaller(low, x);
        high = larger(high, x);
    }
    const float lowest = -largest_of(-low), range = largest_of(high) - lowest;
    *scale = range > 1e-30f ? range / 255.0f : 1.0f;
    const float inverse = 1.0f / *scale;
    const Floats zero_point = nearest(splat(-lowest * inverse));
    *zero = static_cast<int32_t>(zero_point[0]);
    typedef uint8_t Bytes __attribute__((vector_size(16)));
    for (i = 0; i < padded; i += LANES) {
        Floats x = i + LANES <= count ? load(from + i) : load_part(from + i, count > i ? count - i : 0, 0.0f);
        Floats q = nearest(x * splat(inverse)) + zero_point;
        q = smaller(larger(q, splat(0.0f)), splat(255.0f));
        Bytes narrow = __builtin_convertvector(whole(q), Bytes);
        __builtin_memcpy(bytes + i, &narrow, sizeof narrow);
    }
}

void normalise(const float* from, int count, const Norm& norm, float* to) {
    float mean = 0.0f;
    Floats total = splat(0.0f);
    int i = 0;
    if (!norm.only_scale) {
        for (; i + LANES <= count; i += LANES) total += load(from + i);
        if (i < count) total += load_part(from + i, count - i, 0.0f);
        mean = sum_of(total) / static_cast<float>(count);
    }
    Floats squares = splat(0.0f);
    for (i = 0; i + LANES <= count; i += LANES) {
        Floats x = load(from + i) - splat(mean);
        squares += x * x;
    }
    if (i < count) {
        Floats x = load_part(from + i, count - i, mean) - splat(mean);
        squares += x * x;
    }
    const float deviation = __builtin_sqrtf(sum_of(squares) / static_cast<float>(count) + norm.epsilon);
    const Floats scale = splat(1.0f / deviation), centre = splat(mean);
    for (i = 0; i < count; i += LANES) {
        const int left = count - i;
        const bool full = left >= LANES;
        Floats x = full ? load(from + i) : load_part(from + i, left, 0.0f);
        Floats y = (x - centre) * scale * (full ? load(norm.weight + i) : load_part(norm.weight + i, left, 0.0f));
        if (norm.bias) y += full ? load(norm.bias + i) : load_part(norm.bias + i, left, 0.0f);
        if (full) store(to + i, y);
        else store_part(to + i, y, left);
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

// Each pair of features turned by its angle; `turns` holds cosine and sine of each pair.
void rotate(float* heads, int num_heads, int head_dim, const float* turns) {
    for (int head = 0; head < num_heads; ++head) {
        float* x = heads + head * head_dim;
        for (int i = 0; i < head_dim; i += 2) {
            const float even = x[i], odd = x[i + 1], cosine = turns[i], sine = turns[i + 1];
            x[i] = even * cosine - odd * sine;
            x[i + 1] = even * sine + odd * cosine;
        }
    }
}

void gate(const float* inner, const float* gates, int count, float* to) {
    for (int i = 0; i < count; i += LANES) {
        const int left = count - i;
        if (left >= LANES) store(to + i, silu(load(gates + i)) * load(inner + i));
        else store_part(to + i, silu(load_part(gates + i, left, 0.0f)) * load_part(inner + i, left, 0.0f), left);
    }
}

inline float dot_floats(const float* a, const float* b, int count) {
    Floats total = splat(0.0f);
    int i = 0;
    for (; i + LANES <= count; i += LANES) total += load(a + i) * load(b + i);
    if (i < count) total += load_part(a + i, count - i, 0.0f) * load_part(b + i, count - i, 0.0f);
    return sum_of(total);
}

// scores -> weights that sum to one; the lanes behind `count` become zero.
inline void softmax(float* scores, int count) {
    const int padded = (count + LANES - 1) / LANES * LANES;
    for (int t = count; t < padded; ++t) scores[t] = -__builtin_inff();
    Floats most = load(scores), total = splat(0.0f);
    for (int t = LANES; t < padded; t += LANES) most = larger(most, load(scores + t));
    const Floats largest = splat(largest_of(most));
    for (int t = 0; t < padded; t += LANES) {
        Floats x = exponential(load(scores + t) - largest);
        total += x;
        store(scores + t, x);
    }
    const Floats inverse = splat(1.0f / sum_of(total));
    for (int t = 0; t < padded; t += LANES) store(scores + t, load(scores + t) * inverse);
}

inline void weigh_values(const Attended& a, int head, const float* weights, float* to) {
    const float* values = a.keys + a.value_shift + head * a.head_dim;
    int i = 0;
    for (; i + 4 * LANES <= a.head_dim; i += 4 * LANES) {
        Floats p = splat(0.0f), q = p, r = p, s = p;
        for (int t = 0; t < a.count; ++t) {
            const float* value = values + a.offsets[t] + i;
            const Floats weight = splat(weights[t]);
            p += weight * load(value);
            q += weight * load(value + LANES);
            r += weight * load(value + 2 * LANES);
            s += weight * load(value + 3 * LANES);
        }
        store(to + i, p), store(to + i + LANES, q), store(to + i + 2 * LANES, r), store(to + i + 3 * LANES, s);
    }
    for (; i < a.head_dim; i += LANES) {
        const int left = a.head_dim - i < LANES ? a.head_dim - i : LANES;
        Floats p = splat(0.0f);
        for (int t = 0; t < a.count; ++t) {
            const float* value = values + a.offsets[t] + i;
            p += splat(weights[t]) * (left == LANES ? load(value) : load_part(value, left, 0.0f));
        }
        store_part(to + i, p, left);
    }
}

// All heads of one query; `scores` has room for the count rounded up to whole lanes.
void attend(const float* query, const Attended& a, float* scores, float* to) {
    for (int head = 0; head < a.num_heads; ++head) {
        const float* q = query + head * a.head_dim;
        const float* keys = a.keys + head * a.head_dim;
        for (int t = 0; t < a.count; ++t) scores[t] = dot_floats(q, keys + a.offsets[t], a.head_dim) * a.scale;
        softmax(scores, a.count);
        weigh_values(a, head, scores, to + head * a.head_dim);
    }
}

void scan(const float* logits, int count, float* largest, float* sum) {
    const float nothing = -__builtin_inff();
    Floats most = splat(nothing), total = splat(0.0f);
    int i = 0;
    for (; i + LANES <= count; i += LANES) most = larger(load(logits + i), most);
    if (i < count) most = larger(load_part(logits + i, count - i, nothing), most);
    *largest = largest_of(most);
    const Floats centre = splat(*largest);
    for (i = 0; i + LANES <= count; i += LANES) total += exponential(load(logits + i) - centre);
    if (i < count) total += exponential(load_part(logits + i, count - i, nothing) - centre);
    *sum = sum_of(total);
}

inline void insert(float value, int32_t token, Candidate* best, int keep) {
    int place = keep;
    while (place > 0 && (value > best[place - 1].value || (value == best[place - 1].value && token < best[place - 1].token)))
        --place;
    if (place == keep) return;
    for (int i = keep - 1; i > place; --i) best[i] = best[i - 1];
    best[place] = Candidate{value, token};
}

void choose(const float* logits, int count, int32_t first_token, Candidate* best, int keep) {
    const float nothing = -__builtin_inff();
    constexpr int BLOCK = 4 * LANES;
    for (int i = 0; i < count; i += BLOCK) {
        const int left = count - i < BLOCK ? count - i : BLOCK;
        if (left == BLOCK) {
            Floats most = larger(larger(load(logits + i), load(logits + i + LANES)),
                                 larger(load(logits + i + 2 * LANES), load(logits + i + 3 * LANES)));
            if (!(largest_of(most) >= best[keep - 1].value)) continue;
        }
        for (int j = i; j < i + left; ++j)
            if (logits[j] > nothing && logits[j] >= best[keep - 1].value)
                insert(logits[j], first_token + j, best, keep);
    }
}
