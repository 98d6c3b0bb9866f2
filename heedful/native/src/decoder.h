// One step of the decoder for many rows, and the best next tokens of each.
#pragma once

#include <vector>

#include "encoder.h"
#include "shortlist.h"

namespace heedful {

// A hypothesis that takes a step: its newest token and where its keys and values lie.
struct Asking {
    int32_t token;
    int sentence;
    const long* places; // of each position so far in the cache, this step's last
    int position;
    int32_t wanted;              // a token whose logit is needed whatever it is
    std::vector<int32_t> banned; // tokens that may not be chosen
    float* weights = nullptr;    // where to write how much it attends to each source token, the mean over heads
};

// What the model says of the next token: log-probabilities are logits less log_sum.
struct Answer {
    float log_sum, wanted;
    const Candidate* best; // the best few, best first; a token below 0 marks an empty place
};

class Decoder : Stack {
  public:
    Decoder(const Model& model, const Kernels& kernels, Pool& pool) : Stack(model, kernels, pool), cache_(model, kernels) {}
    // Make room for some hypotheses at a time, each of so many tokens.
    void begin(const Memory& memory, long num_slots, long capacity);
    // The candidates of each sentence, in rising order; none at all: every token.
    void choose_from(std::vector<std::vector<int32_t>> lists);
    long place(long slot, long position) const { return (slot * capacity_ + position) * entry(); }
    void step(const std::vector<Asking>& asking);
    // The best `keep` tokens of each row after a step.
    const std::vector<Answer>& answers(const std::vector<Asking>& asking, int keep);
    // All logits of each row after a step; row r at to + r · vocabulary.
    void logits(float* to);

  private:
    // Room for keys and values of one token; the numbers more keep neighbours in different places of the cache.
    long entry() const { return padded(2 * model_.inner(), 16) + 32; }
    float* scores(int thread) const { return scores_.data() + thread * MOST_QUERIES * model_.shape.num_heads * scores_room_; }
    void attend_self(const DecoderLayer& layer, long index, const std::vector<Asking>& asking);
    void attend_memory(const DecoderLayer& layer, long index, const std::vector<Asking>& asking);
    void show(float* to, int count, const float* scores) const;
    void judge(const std::vector<Asking>& asking, long chunk, int thread, int keep);
    void gather(long row, float* partials, int keep);
    const std::vector<Answer>& selected_answers(const std::vector<Asking>& asking, int keep);
    void judge_selected(const Asking& ask, long row, int thread, int keep);
    static float log_of_sum(const float* partials, long chunks);

    const Memory* memory_ = nullptr;
    long num_slots_ = 0, capacity_ = 0, scores_room_ = 0, selected_stride_ = 0, own_room_ = 0;
    Selection selection_;
    Kept cache_;
    Buffer<float> scores_, logits_, partials_, own_;
    Buffer<long> offsets_;
    Buffer<Candidate> candidates_;
    std::vector<Answer> answers_;
};

} // namespace heedful
