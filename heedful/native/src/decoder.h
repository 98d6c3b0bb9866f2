// One step of the decoder for many rows.
#pragma once

#include <vector>

#include "encoder.h"

namespace heedful {

// The input of one decoder step for one hypothesis: its newest token and the cache offsets of its keys and values.
struct DecoderInput {
    int32_t token;
    int sentence;
    const long* offsets; // cache offset of each position, the current one last
    int position;
    float* weights = nullptr; // if not null, receives its attention weights over the source
};

// The attention used for alignments: one head of a layer, or the mean over its heads (-1).
struct AlignmentHead {
    int layer = 0, head = -1;
};

class Decoder : LayerOps {
  public:
    Decoder(const Model& model, const Kernels& kernels, ThreadPool& pool) : LayerOps(model, kernels, pool), cache_(model, kernels) {}
    // Prepare for `num_slots` hypotheses of up to `capacity` tokens.
    void begin(const Memory& memory, long num_slots, long capacity);
    long offset(long slot, long position) const { return (slot * capacity_ + position) * entry(); }
    void set_alignment_head(AlignmentHead alignment_head) { alignment_head_ = alignment_head; }
    void step(const std::vector<DecoderInput>& inputs);
    // The input of the output layer, one row per decoder input.
    const Rows& rows() const { return rows_; }

  private:
    // Size of the keys and values of one token; the padding avoids cache conflicts between neighbours.
    long entry() const { return padded(2 * model_.inner(), 16) + 32; }
    float* scores(int thread) const { return scores_.data() + thread * MAX_QUERIES * model_.shape.num_heads * scores_stride_; }
    void attend_self(const DecoderLayer& layer, long index, const std::vector<DecoderInput>& inputs);
    void attend_memory(const DecoderLayer& layer, long index, const std::vector<DecoderInput>& inputs);
    void copy_attention_weights(float* to, int count, const float* scores) const;

    const Memory* memory_ = nullptr;
    long num_slots_ = 0, capacity_ = 0, scores_stride_ = 0;
    AlignmentHead alignment_head_;
    KeyValueCache cache_;
    Buffer<float> scores_;
    Buffer<long> offsets_;
};

} // namespace heedful
