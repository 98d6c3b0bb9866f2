#include "output_layer.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "utf8_automaton.h"

namespace heedful {
namespace {

constexpr int CHUNK_STRIDE = CHUNK + 16; // a stride that is a power of two would cause cache conflicts
constexpr float NEGATIVE_INFINITY = -std::numeric_limits<float>::infinity();

long find(const std::vector<int32_t>& list, int32_t token) {
    const auto found = std::lower_bound(list.begin(), list.end(), token);
    return found != list.end() && *found == token ? found - list.begin() : -1L;
}

} // namespace

void merge(const Candidate* found, Candidate* best, int keep) {
    for (int i = 0; i < keep && found[i].token >= 0; ++i) {
        int rank = keep;
        while (rank > 0 && (best[rank - 1].token < 0 || better(found[i], best[rank - 1]))) --rank;
        if (rank == keep) break;
        std::copy_backward(best + rank, best + keep - 1, best + keep);
        best[rank] = found[i];
    }
}

void TokenConstraint::apply(float* logits, int32_t first, int32_t count) const {
    if (only) {
        std::pair<int32_t, float> kept[Utf8Automaton::BYTES];
        int num_kept = 0;
        for (auto at = std::lower_bound(only->begin(), only->end(), first); at != only->end() && *at < first + count; ++at)
            kept[num_kept++] = {*at - first, logits[*at - first]};
        std::fill(logits, logits + count, NEGATIVE_INFINITY);
        for (int i = 0; i < num_kept; ++i) logits[kept[i].first] = kept[i].second;
        return;
    }
    auto at = std::lower_bound(forbidden->begin(), forbidden->end(), first);
    for (; at != forbidden->end() && *at < first + count; ++at) logits[*at - first] = NEGATIVE_INFINITY;
    for (int32_t token : banned)
        if (token >= first && token < first + count) logits[token - first] = NEGATIVE_INFINITY;
}

void OutputLayer::set_candidates(std::vector<std::vector<int32_t>> lists, const std::vector<const std::vector<int32_t>*>& forbidden) {
    forbidden_positions_.assign(lists.size(), {});
    for (size_t i = 0; i < lists.size(); ++i)
        for (int32_t token : *forbidden[i])
            if (const long index = find(lists[i], token); index >= 0) forbidden_positions_[i].push_back(static_cast<int32_t>(index));
    if (lists.empty()) selection_.clear();
    else selection_.set(model_.output, std::move(lists), pool_);
}

const std::vector<NextTokenScores>& OutputLayer::score(const Rows& rows, const std::vector<TokenConstraint>& constraints, int keep) {
    num_rows_ = static_cast<long>(constraints.size());
    if (selection_.is_set()) return compute_selected(rows, constraints, keep);
    const long chunks = (model_.output.num_tiles + CHUNK_TILES - 1) / CHUNK_TILES;
    logits_.reserve(pool_.size() * num_rows_ * CHUNK_STRIDE);
    partials_.reserve(2 * num_rows_ * chunks);
    Candidate* candidates = candidates_.reserve((pool_.size() + 1) * num_rows_ * keep);
    std::fill(candidates, candidates + (pool_.size() + 1) * num_rows_ * keep, Candidate{NEGATIVE_INFINITY, -1});
    prepare_scores(constraints);
    pool_.each(chunks, [&](long chunk, int thread) { score_chunk(rows, constraints, chunk, thread, keep); });
    for_each_row(pool_, num_rows_, [&](long row, int) { combine(row, partials_.data() + 2 * row * chunks, keep); });
    return scores_;
}

void OutputLayer::prepare_scores(const std::vector<TokenConstraint>& constraints) {
    scores_.resize(num_rows_);
    for (long row = 0; row < num_rows_; ++row) {
        scores_[row].required.clear();
        for (int32_t token : constraints[row].required) scores_[row].required.push_back({NEGATIVE_INFINITY, token});
    }
}

// Compute the logits of a chunk, add their partial sums, and update this thread's best candidates.
void OutputLayer::score_chunk(const Rows& rows, const std::vector<TokenConstraint>& constraints, long chunk, int thread, int keep) {
    const Linear& output = model_.output;
    const int first_tile = static_cast<int>(chunk) * CHUNK_TILES, end_tile = std::min(first_tile + CHUNK_TILES, output.num_tiles);
    const int first = first_tile * TILE, count = std::min(first + CHUNK, output.outputs) - first;
    const long chunks = (output.num_tiles + CHUNK_TILES - 1) / CHUNK_TILES;
    float* logits = logits_.data() + thread * num_rows_ * CHUNK_STRIDE;
    kernels_.multiply(output, rows, {0, num_rows_, first_tile, end_tile}, logits, CHUNK_STRIDE, NO_ACTIVATION);
    for (long row = 0; row < num_rows_; ++row) {
        float* row_logits = logits + row * CHUNK_STRIDE;
        float* partial = partials_.data() + 2 * (row * chunks + chunk);
        kernels_.scan(row_logits, count, partial, partial + 1);
        const int32_t wanted = constraints[row].wanted - first;
        if (wanted >= 0 && wanted < count) scores_[row].wanted = row_logits[wanted];
        for (Candidate& required : scores_[row].required)
            if (required.token >= first && required.token < first + count) required.value = row_logits[required.token - first];
        constraints[row].apply(row_logits, first, count);
        Candidate* best = candidates_.data() + ((thread + 1) * num_rows_ + row) * keep;
        if (partial[0] >= best[keep - 1].value) kernels_.choose(row_logits, count, first, best, keep);
    }
}

// log Σ exp(logit) from the maximum and the sum of each chunk, in a fixed order.
float OutputLayer::log_of_sum(const float* partials, long chunks) {
    float largest = NEGATIVE_INFINITY;
    for (long c = 0; c < chunks; ++c) largest = std::max(largest, partials[2 * c]);
    double sum = 0;
    for (long c = 0; c < chunks; ++c) sum += partials[2 * c + 1] * std::exp(static_cast<double>(partials[2 * c]) - largest);
    return static_cast<float>(largest + std::log(sum));
}

// Combine the partial sums of a row and the candidates of all threads.
void OutputLayer::combine(long row, float* partials, int keep) {
    const long chunks = (model_.output.num_tiles + CHUNK_TILES - 1) / CHUNK_TILES;
    scores_[row].log_sum = log_of_sum(partials, chunks);
    Candidate* best = candidates_.data() + row * keep;
    for (int thread = 1; thread <= pool_.size(); ++thread) merge(candidates_.data() + (thread * num_rows_ + row) * keep, best, keep);
    scores_[row].best = best;
}

// Multiply all rows by the union of the sentences' candidates, then score each row over its own sentence's candidates.
const std::vector<NextTokenScores>& OutputLayer::compute_selected(const Rows& rows, const std::vector<TokenConstraint>& constraints, int keep) {
    selected_stride_ = static_cast<long>(selection_.columns().num_tiles) * TILE + 16;
    list_stride_ = padded(static_cast<long>(selection_.longest()), CHUNK);
    float* logits = logits_.reserve(num_rows_ * selected_stride_);
    list_logits_.reserve(pool_.size() * list_stride_);
    partials_.reserve(2 * pool_.size() * list_stride_ / CHUNK);
    Candidate* candidates = candidates_.reserve(num_rows_ * keep);
    std::fill(candidates, candidates + num_rows_ * keep, Candidate{NEGATIVE_INFINITY, -1});
    prepare_scores(constraints);
    multiply(pool_, kernels_, selection_.columns(), rows, num_rows_, logits, selected_stride_);
    for_each_row(pool_, num_rows_, [&](long row, int thread) { score_selected(constraints[row], row, thread, keep); }, 4);
    return scores_;
}

// Chunks follow the sentence's own list, so that the order of summation does not depend on the batch.
void OutputLayer::score_selected(const TokenConstraint& constraint, long row, int thread, int keep) {
    const std::vector<int32_t>& list = selection_.list(constraint.sentence);
    const long count = static_cast<long>(list.size()), chunks = (count + CHUNK - 1) / CHUNK;
    float *logits = logits_.data() + row * selected_stride_, *partials = partials_.data() + 2 * thread * list_stride_ / CHUNK;
    if (const int32_t* columns = selection_.column_indices(constraint.sentence)) {
        const float* all = logits;
        logits = list_logits_.data() + thread * list_stride_;
        for (long i = 0; i < count; ++i) logits[i] = all[columns[i]];
    }
    for (long c = 0; c < chunks; ++c)
        kernels_.scan(logits + c * CHUNK, static_cast<int>(std::min<long>(CHUNK, count - c * CHUNK)), partials + 2 * c, partials + 2 * c + 1);
    NextTokenScores& answer = scores_[row];
    answer.log_sum = log_of_sum(partials, chunks);
    if (const long wanted = find(list, constraint.wanted); wanted >= 0) answer.wanted = logits[wanted];
    for (Candidate& required : answer.required)
        if (const long index = find(list, required.token); index >= 0) required.value = logits[index];
    apply_selected(constraint, logits);
    Candidate* best = candidates_.data() + row * keep;
    for (long c = 0; c < chunks; ++c) {
        const int first = static_cast<int>(c) * CHUNK, end = static_cast<int>(std::min<long>(first + CHUNK, count));
        if (partials[2 * c] >= best[keep - 1].value) kernels_.choose(logits + first, end - first, first, best, keep);
    }
    for (int i = 0; i < keep && best[i].token >= 0; ++i) best[i].token = list[best[i].token];
    answer.best = best;
}

// The same as TokenConstraint::apply, on the logits of a sentence's candidates.
void OutputLayer::apply_selected(const TokenConstraint& constraint, float* logits) const {
    const std::vector<int32_t>& list = selection_.list(constraint.sentence);
    if (constraint.only) {
        std::pair<long, float> kept[Utf8Automaton::BYTES];
        int num_kept = 0;
        for (int32_t token : *constraint.only)
            if (const long index = find(list, token); index >= 0) kept[num_kept++] = {index, logits[index]};
        std::fill(logits, logits + list.size(), NEGATIVE_INFINITY);
        for (int i = 0; i < num_kept; ++i) logits[kept[i].first] = kept[i].second;
        return;
    }
    for (int32_t index : forbidden_positions_[constraint.sentence]) logits[index] = NEGATIVE_INFINITY;
    for (int32_t token : constraint.banned)
        if (const long index = find(list, token); index >= 0) logits[index] = NEGATIVE_INFINITY;
}

void OutputLayer::logits(const Rows& rows, long num_rows, float* to) {
    const long stride = static_cast<long>(model_.output.num_tiles) * TILE;
    float* all = logits_.reserve(num_rows * stride);
    multiply(pool_, kernels_, model_.output, rows, num_rows, all, stride);
    for (long row = 0; row < num_rows; ++row)
        std::memcpy(to + row * model_.output.outputs, all + row * stride, model_.output.outputs * sizeof(float));
}

} // namespace heedful
