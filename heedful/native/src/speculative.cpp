#include "speculative.h"

#include <algorithm>
#include <cstring>
#include <limits>

namespace heedful {
namespace {

constexpr float NOTHING = -std::numeric_limits<float>::infinity();

} // namespace

const std::vector<int32_t>& Draft::guess(const Rows& rows, const std::vector<Wish>& wishes) {
    sketch_ = &model_.sketch(kernels_, pool_);
    num_rows_ = static_cast<long>(wishes.size());
    logits_.room(pool_.size() * CHUNK);
    candidates_.room((pool_.size() + 1) * num_rows_ * CANDIDATES);
    std::fill(candidates(0, 0), candidates(pool_.size() + 1, 0), Candidate{NOTHING, -1});
    pool_.each((model_.output.num_tiles + CHUNK_TILES - 1) / CHUNK_TILES,
               [&](long chunk, int thread) { look(rows, wishes, chunk, thread); });
    for (long row = 0; row < num_rows_; ++row)
        for (int thread = 1; thread <= pool_.size(); ++thread) merge(candidates(thread, row), candidates(0, row), CANDIDATES);
    pool_.each(num_rows_ * CANDIDATES, [&](long unit, int) {
        Candidate& one = candidates(0, 0)[unit];
        if (one.token >= 0) one.value = logit(rows, unit / CANDIDATES, one.token);
    });
    guessed_.clear();
    for (long row = 0; row < num_rows_; ++row) {
        const Candidate* best = candidates(0, row);
        for (const Candidate* one = best; one < candidates(0, row) + CANDIDATES && one->token >= 0; ++one)
            if (better(*one, *best)) best = one;
        guessed_.push_back(best->token);
    }
    return guessed_;
}

// The sketch of a chunk's logits, and the best of them beside those this thread found before.
void Draft::look(const Rows& rows, const std::vector<Wish>& wishes, long chunk, int thread) {
    const Linear& output = model_.output;
    const int first_tile = static_cast<int>(chunk) * CHUNK_TILES, end_tile = std::min(first_tile + CHUNK_TILES, output.num_tiles);
    const int first = first_tile * TILE, count = std::min(first + CHUNK, output.outputs) - first;
    float* logits = logits_.data() + thread * CHUNK;
    for (long row = 0; row < num_rows_; ++row) {
        kernels_.glance(output, *sketch_, rows, row, first_tile, end_tile, logits);
        wishes[row].restrict(logits, first, count);
        kernels_.choose(logits, count, first, candidates(thread + 1, row), CANDIDATES);
    }
}

// What the whole layer says of one token, computed as it would be there.
float Draft::logit(const Rows& rows, long row, int32_t token) const {
    const Linear& output = model_.output;
    const long groups = output.padded_inputs / 4;
    const int8_t* column = output.weights + (token / TILE * groups * TILE + token % TILE) * 4;
    const uint8_t* bytes = rows.bytes + row * rows.byte_stride;
    int32_t sum = 0;
    for (long g = 0; g < groups; ++g, bytes += 4, column += 4 * TILE)
        sum += bytes[0] * column[0] + bytes[1] * column[1] + bytes[2] * column[2] + bytes[3] * column[3];
    const uint32_t shift = static_cast<uint32_t>(rows.zeros[row]) * static_cast<uint32_t>(output.sums[token]);
    return static_cast<float>(static_cast<int32_t>(static_cast<uint32_t>(sum) - shift)) * (rows.scales[row] * output.scales[token]) + output.bias[token];
}

void Draft::keep(const Rows& rows, long row, Wish wish, int32_t token) {
    const long most = padded(LONGEST_REACH + kernels_.guessing_rows, MOST_ROWS), place = static_cast<long>(tokens_.size());
    kept_.byte_stride = rows.byte_stride;
    kept_.bytes = bytes_.room(most * rows.byte_stride);
    kept_.scales = scales_.room(most);
    kept_.zeros = zeros_.room(most);
    std::memcpy(kept_.bytes + place * rows.byte_stride, rows.bytes + row * rows.byte_stride, model_.output.padded_inputs);
    kept_.scales[place] = rows.scales[row];
    kept_.zeros[place] = rows.zeros[row];
    wishes_.push_back(std::move(wish));
    tokens_.push_back(token);
}

void Draft::close(int right, int wrong) {
    reach_ = wrong == 0 ? std::min(2 * reach_, LONGEST_REACH) : reach_ / 2;
    counts_.right += right, counts_.wrong += wrong;
    clear();
}

} // namespace heedful
