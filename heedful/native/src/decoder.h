// One step of the decoder for many rows.
#pragma once

#include <vector>

#include "encoder.h"

namespace heedful {

// A hypothesis that takes a step: its newest token and where its keys and values lie.
struct Asking {
    int32_t token;
    int sentence;
    const long* places; // of each position so far in the cache, this step's last
    int position;
    float* weights = nullptr; // where to write how much it attends to each source token
};

// Whose weights are written for alignments: one head of a layer, or the mean over its heads (-1).
struct Shown {
    int layer = 0, head = -1;
};

class Decoder : Stack {
  public:
    Decoder(const Model& model, const Kernels& kernels, Pool& pool) : Stack(model, kernels, pool), cache_(model, kernels) {}
    // Make room for some hypotheses at a time, each of so many tokens.
    void begin(const Memory& memory, long num_slots, long capacity);
    long place(long slot, long position) const { return (slot * capacity_ + position) * entry(); }
    void show_from(Shown shown) { shown_ = shown; }
    void step(const std::vector<Asking>& asking);
    // What the output layer is given, one row for each that asked.
    const Rows& rows() const { return rows_; }

  private:
    // Room for keys and values of one token; the numbers more keep neighbours in different places of the cache.
    long entry() const { return padded(2 * model_.inner(), 16) + 32; }
    float* scores(int thread) const { return scores_.data() + thread * MOST_QUERIES * model_.shape.num_heads * scores_room_; }
    void attend_self(const DecoderLayer& layer, long index, const std::vector<Asking>& asking);
    void attend_memory(const DecoderLayer& layer, long index, const std::vector<Asking>& asking);
    void show(float* to, int count, const float* scores) const;

    const Memory* memory_ = nullptr;
    long num_slots_ = 0, capacity_ = 0, scores_room_ = 0;
    Shown shown_;
    Kept cache_;
    Buffer<float> scores_;
    Buffer<long> offsets_;
};

} // namespace heedful
