#include "shortlist.h"

#include <algorithm>
#include <cstring>

namespace heedful {
namespace {

// Columns of a packed matrix in groups of four bytes: four int8 weights or one float.
struct Packed {
    const char* bytes;
    long groups; // per column
    const char* at(int32_t column) const { return bytes + 4 * (column / TILE * groups * TILE + column % TILE); }
};

void pack_tile(const Packed& from, const int32_t* tokens, int count, uint32_t* to) {
    if (count < TILE) std::memset(to, 0, from.groups * TILE * sizeof(uint32_t));
    for (int i = 0; i < count; ++i) {
        const char* column = from.at(tokens[i]);
        for (long g = 0; g < from.groups; ++g) std::memcpy(to + g * TILE + i, column + g * TILE * 4, 4);
    }
}

} // namespace

Shortlist::Shortlist(const HeedfulShortlist& given, const Shape& shape) : vocab_size_(shape.target_vocab_size) {
    auto check = [](bool is_right, const char* what) {
        if (!is_right) fail(std::string("the shortlist is damaged or of another model: ") + what);
    };
    check(given.num_sources == shape.source_vocab_size, "it is for another number of source tokens");
    check(given.num_targets >= 0 && given.num_always >= 0, "a count is negative");
    starts_.assign(given.starts, given.starts + given.num_sources + 1);
    check(starts_.front() == 0 && starts_.back() == given.num_targets, "its lists have not their full size");
    check(std::is_sorted(starts_.begin(), starts_.end()), "its lists are not one after another");
    check(given.target_size == 2 || given.target_size == 4, "its tokens are of no known size");
    if (given.target_size == 2) {
        const uint16_t* targets = static_cast<const uint16_t*>(given.targets);
        targets_.assign(targets, targets + given.num_targets);
    } else {
        const int32_t* targets = static_cast<const int32_t*>(given.targets);
        targets_.assign(targets, targets + given.num_targets);
    }
    always_.assign(given.always, given.always + given.num_always);
    for (const std::vector<int32_t>* tokens : {&targets_, &always_})
        for (int32_t token : *tokens) check(token >= 0 && token < vocab_size_, "a token is not in the vocabulary");
}

std::vector<int32_t> Shortlist::candidates(const int32_t* tokens, long count, const std::vector<int32_t>& more) const {
    std::vector<uint8_t> marks(vocab_size_);
    for (int32_t token : always_) marks[token] = 1;
    for (int32_t token : more) marks[token] = 1;
    for (long i = 0; i < count; ++i)
        for (int64_t at = starts_[tokens[i]]; at < starts_[tokens[i] + 1]; ++at) marks[targets_[at]] = 1;
    std::vector<int32_t> found;
    for (int32_t token = 0; token < vocab_size_; ++token)
        if (marks[token]) found.push_back(token);
    return found;
}

void Selection::set(const Linear& output, std::vector<std::vector<int32_t>> lists, ThreadPool& pool) {
    lists_ = std::move(lists);
    column_indices_.clear();
    longest_ = 0;
    std::vector<int32_t> column_of(output.outputs, -1), tokens;
    for (const std::vector<int32_t>& list : lists_) {
        longest_ = std::max(longest_, list.size());
        for (int32_t token : list) column_of[token] = 0;
    }
    for (int32_t token = 0; token < output.outputs; ++token)
        if (column_of[token] == 0) tokens.push_back(token);
    const bool all = 4 * tokens.size() > 3 * static_cast<size_t>(output.outputs); // packing would not be faster
    if (all) columns_ = output;
    else pack(output, tokens, pool);
    if (!all && lists_.size() == 1) return;
    for (size_t i = 0; i < tokens.size(); ++i) column_of[tokens[i]] = all ? tokens[i] : static_cast<int32_t>(i);
    for (const std::vector<int32_t>& list : lists_) {
        column_indices_.emplace_back(list.size());
        for (size_t i = 0; i < list.size(); ++i) column_indices_.back()[i] = column_of[list[i]];
    }
}

void Selection::pack(const Linear& output, const std::vector<int32_t>& tokens, ThreadPool& pool) {
    const long count = static_cast<long>(tokens.size()), tiles = padded(count, TILE) / TILE;
    const char* from = output.floats ? reinterpret_cast<const char*>(output.floats) : reinterpret_cast<const char*>(output.weights);
    const Packed packed = {from, output.floats ? output.padded_inputs : output.padded_inputs / 4};
    const long tile_size = packed.groups * TILE;
    weights_.reserve(tiles * tile_size + 8192); // kernels prefetch past the end
    float *scales = scales_.reserve(tiles * TILE), *bias = bias_.reserve(tiles * TILE);
    int32_t* sums = sums_.reserve(tiles * TILE);
    std::fill(scales, scales + tiles * TILE, 0.0f);
    std::fill(bias, bias + tiles * TILE, 0.0f);
    std::fill(sums, sums + tiles * TILE, 0);
    for (long i = 0; i < count; ++i) {
        bias[i] = output.bias[tokens[i]];
        if (output.floats) continue;
        scales[i] = output.scales[tokens[i]];
        sums[i] = output.sums[tokens[i]];
    }
    pool.each(tiles, [&](long tile, int) {
        const int filled = static_cast<int>(std::min<long>(TILE, count - tile * TILE));
        pack_tile(packed, tokens.data() + tile * TILE, filled, weights_.data() + tile * tile_size);
    });
    columns_ = output;
    columns_.outputs = static_cast<int>(count), columns_.num_tiles = static_cast<int>(tiles);
    columns_.scales = scales, columns_.sums = sums, columns_.bias = bias;
    if (output.floats) columns_.floats = reinterpret_cast<const float*>(weights_.data());
    else columns_.weights = reinterpret_cast<const int8_t*>(weights_.data());
}

} // namespace heedful
