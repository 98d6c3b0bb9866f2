// The output layer: computes the logits of all tokens, or of a shortlist's candidates, and keeps the best few and the
// log-sum-exp of each row.
#pragma once

#include <vector>

#include "shortlist.h"
#include "layer_ops.h"

namespace heedful {

constexpr int CHUNK_TILES = 16; // tiles of the vocabulary that are processed together
constexpr int CHUNK = CHUNK_TILES * TILE;

// Constraints on the next token of a row, and a token whose score is needed anyway.
struct TokenConstraint {
    int sentence;
    int32_t wanted;                        // a token whose logit is returned even if it is forbidden
    const std::vector<int32_t>* forbidden; // forbidden tokens, ascending
    const std::vector<int32_t>* only;      // if not null, only these tokens are allowed, ascending
    std::vector<int32_t> banned;           // additional forbidden tokens
    std::vector<int32_t> required;         // tokens whose logits are returned like that of `wanted`

    // Set forbidden logits to -infinity; `logits` belong to the tokens from `first` on.
    void apply(float* logits, int32_t first, int32_t count) const;
};

// Scores of the next token; log-probability = logit - log_sum.
struct NextTokenScores {
    float log_sum, wanted;
    const Candidate* best; // the best tokens, best first; a negative token marks an empty entry
    std::vector<Candidate> required;
};

inline bool better(const Candidate& a, const Candidate& b) {
    return a.value > b.value || (a.value == b.value && a.token < b.token);
}
// Merge two lists, both best first.
void merge(const Candidate* found, Candidate* best, int keep);

class OutputLayer {
  public:
    OutputLayer(const Model& model, const Kernels& kernels, ThreadPool& pool) : model_(model), kernels_(kernels), pool_(pool) {}
    // Set the candidates of each sentence, ascending, and its forbidden tokens; no lists: every token is a candidate.
    void set_candidates(std::vector<std::vector<int32_t>> lists, const std::vector<const std::vector<int32_t>*>& forbidden);
    // The best `keep` tokens of each row.
    const std::vector<NextTokenScores>& score(const Rows& rows, const std::vector<TokenConstraint>& constraints, int keep);
    // All logits of each row; row r at to + r · vocabulary.
    void logits(const Rows& rows, long num_rows, float* to);

  private:
    void prepare_scores(const std::vector<TokenConstraint>& constraints);
    void score_chunk(const Rows& rows, const std::vector<TokenConstraint>& constraints, long chunk, int thread, int keep);
    void combine(long row, float* partials, int keep);
    const std::vector<NextTokenScores>& compute_selected(const Rows& rows, const std::vector<TokenConstraint>& constraints, int keep);
    void score_selected(const TokenConstraint& constraint, long row, int thread, int keep);
    void apply_selected(const TokenConstraint& constraint, float* logits) const;
    static float log_of_sum(const float* partials, long chunks);

    const Model& model_;
    const Kernels& kernels_;
    ThreadPool& pool_;
    long num_rows_ = 0, selected_stride_ = 0, list_stride_ = 0;
    Selection selection_;
    std::vector<std::vector<int32_t>> forbidden_positions_; // in each sentence's list
    Buffer<float> logits_, partials_, list_logits_;
    Buffer<Candidate> candidates_;
    std::vector<NextTokenScores> scores_;
};

} // namespace heedful
