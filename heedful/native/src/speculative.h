// Speculative greedy decoding. For one row, reading the whole output layer takes as long as reading most of the decoder.
// A sketch of the layer with two bits per weight selects a few candidate tokens, and their exact logits decide. Several
// rows are later verified together against the full layer. After a rejected token, decoding resumes from the verified one,
// so speculation affects only the speed, never the result.
#pragma once

#include <vector>

#include "output_layer.h"

namespace heedful {

struct SpeculationCounts {
    int64_t accepted = 0, rejected = 0;
};

class Speculator {
  public:
    Speculator(const Model& model, const Kernels& kernels, ThreadPool& pool) : model_(model), kernels_(kernels), pool_(pool) {}
    void begin() { lookahead_ = INITIAL_LOOKAHEAD, clear(); }
    // Whether to speculate on this many rows: few enough, and the acceptance rate is high enough.
    bool is_worthwhile(size_t rows) const { return static_cast<int>(rows) <= kernels_.max_speculative_rows && lookahead_ >= MIN_LOOKAHEAD; }
    // The proposed next token of each row.
    const std::vector<int32_t>& propose(const Rows& rows, const std::vector<TokenConstraint>& constraints);

    // Keep a row and its proposed token for verification.
    void add(const Rows& rows, long row, TokenConstraint constraint, int32_t token);
    bool is_full() const { return static_cast<long>(tokens_.size()) >= lookahead_; }
    const Rows& rows() const { return kept_; }
    const std::vector<TokenConstraint>& constraints() const { return constraints_; }
    const std::vector<int32_t>& tokens() const { return tokens_; }
    // Discard the verified rows and record how many tokens were accepted and rejected.
    void close(int accepted, int rejected);
    const SpeculationCounts& counts() const { return counts_; }

  private:
    static constexpr int CANDIDATES = 16;
    static constexpr long INITIAL_LOOKAHEAD = 16, MIN_LOOKAHEAD = 4, MAX_LOOKAHEAD = 64;

    void clear() { constraints_.clear(), tokens_.clear(); }
    void scan_sketch(const Rows& rows, const std::vector<TokenConstraint>& constraints, long chunk, int thread);
    Candidate* candidates(int thread, long row) const { return candidates_.data() + (thread * num_rows_ + row) * CANDIDATES; }
    float logit(const Rows& rows, long row, int32_t token) const;

    const Model& model_;
    const Kernels& kernels_;
    ThreadPool& pool_;
    const Sketch* sketch_ = nullptr;
    long num_rows_ = 0, lookahead_ = INITIAL_LOOKAHEAD;
    Buffer<float> logits_;
    Buffer<Candidate> candidates_;
    std::vector<int32_t> proposed_;
    Rows kept_;
    Buffer<uint8_t> bytes_;
    Buffer<float> scales_;
    Buffer<int32_t> zeros_;
    std::vector<TokenConstraint> constraints_;
    std::vector<int32_t> tokens_;
    SpeculationCounts counts_;
};

} // namespace heedful
