// Lexical shortlists restrict a translation to likely translations of its source tokens, so that only a few columns of
// the output layer are computed.
#pragma once

#include <vector>

#include "buffer.h"
#include "model.h"
#include "c_api.h"
#include "thread_pool.h"

namespace heedful {

// Candidates of each source token, and candidates of every sentence.
class Shortlist {
  public:
    // Checks all bounds against the model.
    Shortlist(const HeedfulShortlist& given, const Shape& shape);
    // The candidates for some source tokens, plus the target tokens `more`, ascending.
    std::vector<int32_t> candidates(const int32_t* tokens, long count, const std::vector<int32_t>& more) const;

  private:
    std::vector<int64_t> starts_; // offset of each source token's candidates, and the total
    std::vector<int32_t> targets_, always_;
    int32_t vocab_size_;
};

// The output columns that the sentences of a batch need, packed contiguously.
class Selection {
  public:
    void clear() { lists_.clear(); }
    bool is_set() const { return !lists_.empty(); }
    void set(const Linear& output, std::vector<std::vector<int32_t>> lists, ThreadPool& pool);

    const Linear& columns() const { return columns_; }
    const std::vector<int32_t>& list(int sentence) const { return lists_[sentence]; }
    // Column of each of a sentence's candidates; nullptr: the candidates are all columns, in order.
    const int32_t* column_indices(int sentence) const { return column_indices_.empty() ? nullptr : column_indices_[sentence].data(); }
    size_t longest() const { return longest_; }

  private:
    void pack(const Linear& output, const std::vector<int32_t>& tokens, ThreadPool& pool);

    std::vector<std::vector<int32_t>> lists_, column_indices_;
    size_t longest_ = 0;
    Linear columns_;
    Buffer<uint32_t> weights_;
    Buffer<float> scales_, bias_;
    Buffer<int32_t> sums_;
};

} // namespace heedful
