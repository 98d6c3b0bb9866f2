// Lexical shortlists restrict a translation to likely translations of its source tokens, so that only a few columns of
// the output layer are computed.
#pragma once

#include <vector>

#include "buffer.h"
#include "model.h"
#include "c_api.h"
#include "thread_pool.h"

namespace heedful {

// What each source token may become, and what is always allowed.
class Shortlist {
  public:
    // Every bound of what is given is checked against the model.
    Shortlist(const HeedfulShortlist& given, const Shape& shape);
    // The candidates of some source tokens, with `more` target tokens, in rising order.
    std::vector<int32_t> candidates(const int32_t* tokens, long count, const std::vector<int32_t>& more) const;

  private:
    std::vector<int64_t> starts_; // of each source token's candidates, and the end of the last
    std::vector<int32_t> targets_, always_;
    int32_t vocab_size_;
};

// The columns of the vocabulary that the sentences of one batch need, packed side by side.
class Selection {
  public:
    void clear() { lists_.clear(); }
    bool is_set() const { return !lists_.empty(); }
    void set(const Linear& output, std::vector<std::vector<int32_t>> lists, ThreadPool& pool);

    const Linear& columns() const { return columns_; }
    const std::vector<int32_t>& list(int sentence) const { return lists_[sentence]; }
    // Where a sentence's candidates stand among the columns; nullptr: they are all of them.
    const int32_t* places(int sentence) const { return places_.empty() ? nullptr : places_[sentence].data(); }
    size_t longest() const { return longest_; }

  private:
    void pack(const Linear& output, const std::vector<int32_t>& tokens, ThreadPool& pool);

    std::vector<std::vector<int32_t>> lists_, places_;
    size_t longest_ = 0;
    Linear columns_;
    Buffer<uint32_t> weights_;
    Buffer<float> scales_, bias_;
    Buffer<int32_t> sums_;
};

} // namespace heedful
