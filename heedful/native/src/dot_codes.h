// Σ bytes · codes of one tile, four codes in each byte: they are unpacked some at a time, and met as weights. Included
// inside an anonymous namespace, after `dot` is defined.
#pragma once

inline void dot_codes(const uint8_t* bytes, const uint8_t* codes, int groups, int32_t* sums) {
    constexpr int MOST = 64, WIDTH = 4 * TILE; // groups unpacked at a time; a group's codes
    alignas(64) int8_t weights[MOST * WIDTH];
    alignas(64) int32_t some[MOST_ROWS * TILE];
    for (int output = 0; output < TILE; ++output) sums[output] = 0;
    for (int first = 0; first < groups; first += MOST) {
        const int count = groups - first < MOST ? groups - first : MOST;
        for (int g = 0; g < count; g += 4)
            for (int part = 0; part < 4; ++part)
                for (int i = 0; i < WIDTH; ++i)
                    weights[(g + part) * WIDTH + i] = static_cast<int8_t>(codes[(first + g) / 4 * WIDTH + i] >> 2 * part & 3);
        dot(bytes + 4 * first, 0, 1, weights, count, true, some);
        for (int output = 0; output < TILE; ++output) sums[output] += some[output];
    }
}
