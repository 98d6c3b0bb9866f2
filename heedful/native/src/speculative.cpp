#include "speculative.h"

#include <algorithm>
#include <cstring>
#include <limits>

namespace heedful {
namespace {

constexpr float NEGATIVE_INFINITY = -std::numeric_limits<float>::infinity();

} // namespace

const std::vector<int32_t>& Speculator::propose(const Rows& rows, const std::vector<TokenConstraint>& constraints) {
    sketch_ = &model_.sketch(kernels_, pool_);
    num_rows_ = static_cast<long>(constraints.size());
    logits_.reserve(pool_.size() * CHUNK);
    candidates_.reserve((pool_.size() + 1) * num_rows_ * CANDIDATES);
    std::fill(candidates(0, 0), candidates(pool_.size() + 1, 0), Candidate{NEGATIVE_INFINITY, -1});
    pool_.each((model_.output.num_tiles + CHUNK_TILES - 1) / CHUNK_TILES,
               [&](long chunk, int thread) { scan_sketch(rows, constraints, chunk, thread); });
    for (long row = 0; row < num_rows_; ++row)
        for (int thread = 1; thread <= pool_.size(); ++thread) merge(candidates(thread, row), candidates(0, row), CANDIDATES);
    pool_.each(num_rows_ * CANDIDATES, [&](long unit, int) {
        Candidate& one = candidates(0, 0)[unit];
        if (one.token >= 0) one.value = logit(rows, unit / CANDIDATES, one.token);
    });
    proposed_.clear();
    for (long row = 0; row < num_rows_; ++row) {
        const Candidate* best = candidates(0, row);
        for (const Candidate* one = best; one < candidates(0, row) + CANDIDATES && one->token >= 0; ++one)
            if (better(*one, *best)) best = one;
        proposed_.push_back(best->token);
    }
    return proposed_;
}

// Compute approximate logits of a chunk and update this thread's best candidates.
void Speculator::scan_sketch(const Rows& rows, const std::vector<TokenConstraint>& constraints, long chunk, int thread) {
    const Linear& output = model_.output;
    const int first_tile = static_cast<int>(chunk) * CHUNK_TILES, end_tile = std::min(first_tile + CHUNK_TILES, output.num_tiles);
    const int first = first_tile * TILE, count = std::min(first + CHUNK, output.outputs) - first;
    float* logits = logits_.data() + thread * CHUNK;
    for (long row = 0; row < num_rows_; ++row) {
        kernels_.multiply_sketch(output, *sketch_, rows, row, first_tile, end_tile, logits);
        constraints[row].apply(logits, first, count);
        kernels_.choose(logits, count, first, candidates(thread + 1, row), CANDIDATES);
    }
}

// The exact logit of one token, bit-identical to that of the full layer.
float Speculator::logit(const Rows& rows, long row, int32_t token) const {
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

void Speculator::add(const Rows& rows, long row, TokenConstraint constraint, int32_t token) {
    const long most = padded(MAX_LOOKAHEAD + kernels_.max_speculative_rows, MAX_ROWS), index = static_cast<long>(tokens_.size());
    kept_.byte_stride = rows.byte_stride;
    kept_.bytes = bytes_.reserve(most * rows.byte_stride);
    kept_.scales = scales_.reserve(most);
    kept_.zeros = zeros_.reserve(most);
    std::memcpy(kept_.bytes + index * rows.byte_stride, rows.bytes + row * rows.byte_stride, model_.output.padded_inputs);
    kept_.scales[index] = rows.scales[row];
    kept_.zeros[index] = rows.zeros[row];
    constraints_.push_back(std::move(constraint));
    tokens_.push_back(token);
}

void Speculator::close(int accepted, int rejected) {
    lookahead_ = rejected == 0 ? std::min(2 * lookahead_, MAX_LOOKAHEAD) : lookahead_ / 2;
    counts_.accepted += accepted, counts_.rejected += rejected;
    clear();
}

} // namespace heedful
