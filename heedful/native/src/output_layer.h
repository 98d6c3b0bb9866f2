// What the output layer says of the next token. All logits are computed, or those of a shortlist; the best few and the
// sum are kept.
#pragma once

#include <vector>

#include "shortlist.h"
#include "layer_ops.h"

namespace heedful {

constexpr int CHUNK_TILES = 16; // of the vocabulary, looked through together
constexpr int CHUNK = CHUNK_TILES * TILE;

// What is wanted of a row beside its best tokens.
struct Wish {
    int sentence;
    int32_t wanted;                        // a token whose logit is needed whatever it is
    const std::vector<int32_t>* forbidden; // tokens that may not be chosen, in rising order
    const std::vector<int32_t>* only;      // unless null: just these may be chosen, in rising order
    std::vector<int32_t> banned;           // further tokens that may not be chosen

    // Leave what may be chosen among the logits of the tokens from `first` on.
    void restrict(float* logits, int32_t first, int32_t count) const;
};

// What the model says of the next token: log-probabilities are logits less log_sum.
struct Answer {
    float log_sum, wanted;
    const Candidate* best; // the best few, best first; a token below 0 marks an empty place
};

inline bool better(const Candidate& a, const Candidate& b) {
    return a.value > b.value || (a.value == b.value && a.token < b.token);
}
// Put those that were found among the best; both lists are best first.
void merge(const Candidate* found, Candidate* best, int keep);

class Answers {
  public:
    Answers(const Model& model, const Kernels& kernels, Pool& pool) : model_(model), kernels_(kernels), pool_(pool) {}
    // The candidates of each sentence, in rising order; none at all: every token. Some of them may not be chosen.
    void choose_from(std::vector<std::vector<int32_t>> lists, const std::vector<const std::vector<int32_t>*>& forbidden);
    // The best `keep` tokens of each row that the decoder made.
    const std::vector<Answer>& of(const Rows& rows, const std::vector<Wish>& wishes, int keep);
    // All logits of each row; row r at to + r · vocabulary.
    void logits(const Rows& rows, long num_rows, float* to);

  private:
    void judge(const Rows& rows, const std::vector<Wish>& wishes, long chunk, int thread, int keep);
    void gather(long row, float* partials, int keep);
    const std::vector<Answer>& of_selected(const Rows& rows, const std::vector<Wish>& wishes, int keep);
    void judge_selected(const Wish& wish, long row, int thread, int keep);
    void restrict_selected(const Wish& wish, float* own) const;
    static float log_of_sum(const float* partials, long chunks);

    const Model& model_;
    const Kernels& kernels_;
    Pool& pool_;
    long num_rows_ = 0, selected_stride_ = 0, own_room_ = 0;
    Selection selection_;
    std::vector<std::vector<int32_t>> forbidden_places_; // in each sentence's list
    Buffer<float> logits_, partials_, own_;
    Buffer<Candidate> candidates_;
    std::vector<Answer> answers_;
};

} // namespace heedful
