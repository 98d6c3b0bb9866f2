// Tokens guessed ahead. For one row reading the whole output layer takes as long as reading most of the decoder. A sketch
// of it, two bits a weight, shows which few tokens may be the likeliest; the logits of these alone decide. The rows are
// kept, and meet the whole layer together later. A guess that was wrong is then put right and what followed it is done
// again, so that nothing depends on guesses but the time.
#pragma once

#include <vector>

#include "output_layer.h"

namespace heedful {

struct Guesses {
    int64_t right = 0, wrong = 0;
};

class Draft {
  public:
    Draft(const Model& model, const Kernels& kernels, Pool& pool) : model_(model), kernels_(kernels), pool_(pool) {}
    void begin() { reach_ = FIRST_REACH, clear(); }
    // Whether the next tokens of so many rows had better be guessed: guesses have been right often enough, too.
    bool is_worth_while(size_t rows) const { return static_cast<int>(rows) <= kernels_.guessing_rows && reach_ >= LEAST_REACH; }
    // The likeliest token of each row, as far as can be seen.
    const std::vector<int32_t>& guess(const Rows& rows, const std::vector<Wish>& wishes);

    // Keep a row, and the token that was taken to follow.
    void keep(const Rows& rows, long row, Wish wish, int32_t token);
    bool is_full() const { return static_cast<long>(tokens_.size()) >= reach_; }
    const Rows& rows() const { return kept_; }
    const std::vector<Wish>& wishes() const { return wishes_; }
    const std::vector<int32_t>& tokens() const { return tokens_; }
    // Forget the rows: they have been looked at, and so many guesses were right and wrong.
    void close(int right, int wrong);
    const Guesses& counts() const { return counts_; }

  private:
    static constexpr int CANDIDATES = 16;
    static constexpr long FIRST_REACH = 16, LEAST_REACH = 4, LONGEST_REACH = 64;

    void clear() { wishes_.clear(), tokens_.clear(); }
    void look(const Rows& rows, const std::vector<Wish>& wishes, long chunk, int thread);
    Candidate* candidates(int thread, long row) const { return candidates_.data() + (thread * num_rows_ + row) * CANDIDATES; }
    float logit(const Rows& rows, long row, int32_t token) const;

    const Model& model_;
    const Kernels& kernels_;
    Pool& pool_;
    const Sketch* sketch_ = nullptr;
    long num_rows_ = 0, reach_ = FIRST_REACH;
    Buffer<float> logits_;
    Buffer<Candidate> candidates_;
    std::vector<int32_t> guessed_;
    Rows kept_;
    Buffer<uint8_t> bytes_;
    Buffer<float> scales_;
    Buffer<int32_t> zeros_;
    std::vector<Wish> wishes_;
    std::vector<int32_t> tokens_;
    Guesses counts_;
};

} // namespace heedful
