// Conversion of a model's weights: float types, int8 rows with scales, tiles, checksums.

#include <algorithm>
#include <cmath>
#include <cstring>

#include "c_api.h"
#include "kernels.h"

namespace {

constexpr float MIN_SCALE = 1e-30f; // avoids division by zero for rows of zeros

// To the nearest integer, halves to even, for |x| below 2^22.
float round_to_even(float x) {
    constexpr float SHIFT = 12582912.0f; // 1.5 * 2^23: its neighbours are integers
    return (x + SHIFT) - SHIFT;
}

float from_bits(uint32_t bits) {
    float number;
    std::memcpy(&number, &bits, sizeof number);
    return number;
}

float from_float16(uint16_t half) {
    const uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16, exponent = half >> 10 & 31u, fraction = half & 0x3ffu;
    if (exponent == 31) return from_bits(sign | 0x7f800000u | fraction << 13);
    if (exponent) return from_bits(sign | (exponent + 112) << 23 | fraction << 13);
    const float small = static_cast<float>(fraction) * 0x1p-24f; // subnormal
    return sign ? -small : small;
}

// Offset of an output's tile in packed weights, and the output's lane in the tile.
struct PackedOffset {
    PackedOffset(int64_t output, int64_t padded_columns) : tile(output / heedful::TILE * heedful::TILE * padded_columns), lane(output % heedful::TILE) {}
    int64_t tile, lane;
};

} // namespace

int32_t heedful_widen(const char* type, const void* from, int64_t count, float* to) {
    const auto each = [&](auto from_type, auto convert) {
        using From = decltype(from_type);
        const From* numbers = static_cast<const From*>(from);
        for (int64_t i = 0; i < count; ++i) to[i] = convert(numbers[i]);
        return 1;
    };
    if (!std::strcmp(type, "F16")) return each(uint16_t{}, from_float16);
    if (!std::strcmp(type, "BF16")) return each(uint16_t{}, [](uint16_t upper) { return from_bits(static_cast<uint32_t>(upper) << 16); });
    if (!std::strcmp(type, "F64")) return each(double{}, [](double number) { return static_cast<float>(number); });
    return 0;
}

int32_t heedful_all_finite(const float* numbers, int64_t count) {
    int32_t finite = 1;
    for (int64_t i = 0; i < count; ++i) finite &= std::fabs(numbers[i]) <= 3.4028234663852886e38f;
    return finite;
}

void heedful_quantize_rows(const float* weight, int64_t rows, int64_t columns, int8_t* values, float* scales) {
    for (int64_t row = 0; row < rows; ++row, weight += columns, values += columns) {
        float largest = 0.0f;
        for (int64_t i = 0; i < columns; ++i) largest = std::max(largest, std::fabs(weight[i]));
        const float scale = std::max(largest / 127.0f, MIN_SCALE);
        scales[row] = scale;
        for (int64_t i = 0; i < columns; ++i) values[i] = static_cast<int8_t>(round_to_even(weight[i] / scale));
    }
}

void heedful_dequantize_rows(const int8_t* values, const float* scales, int64_t rows, int64_t columns, float* to) {
    for (int64_t row = 0; row < rows; ++row)
        for (int64_t i = row * columns; i < (row + 1) * columns; ++i) to[i] = static_cast<float>(values[i]) * scales[row];
}

void heedful_pack_int8(const int8_t* values, int64_t rows, int64_t columns, int64_t padded_columns, int8_t* to, int32_t* sums) {
    for (int64_t row = 0; row < rows; ++row, values += columns) {
        const PackedOffset offset(row, padded_columns);
        int32_t sum = 0;
        for (int64_t i = 0; i < columns; ++i) {
            to[offset.tile + (i / 4 * heedful::TILE + offset.lane) * 4 + i % 4] = values[i];
            sum += values[i];
        }
        sums[row] = sum;
    }
}

void heedful_pack_float32(const float* weight, int64_t rows, int64_t columns, int64_t padded_columns, float* to) {
    for (int64_t row = 0; row < rows; ++row, weight += columns) {
        const PackedOffset offset(row, padded_columns);
        for (int64_t i = 0; i < columns; ++i) to[offset.tile + i * heedful::TILE + offset.lane] = weight[i];
    }
}

void heedful_checksums(const uint8_t* bytes, int64_t num_words, int64_t first, uint64_t* sum, uint64_t* weighted_sum) {
    for (int64_t i = 0; i < num_words; ++i) {
        uint64_t word;
        std::memcpy(&word, bytes + 8 * i, sizeof word);
        *sum += word;
        *weighted_sum += word * static_cast<uint64_t>(first + i + 1);
    }
}
