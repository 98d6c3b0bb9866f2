// The encoder: the tokens of all sentences as rows without padding, and the keys and values for each decoder layer.
#pragma once

#include <cstring>

#include "layer_ops.h"

namespace heedful {

// Storage for keys and values: bfloat16 with int8 weights, because attention is limited by memory bandwidth, else float32.
class KeyValueCache {
  public:
    KeyValueCache(const Model& model, const Kernels& kernels) : kernels_(kernels), is_bfloat16_(model.shape.int8) {}
    bool is_bfloat16() const { return is_bfloat16_; }
    void reserve(size_t count) { buffer_.reserve(is_bfloat16_ ? (count + 1) / 2 : count); }
    const void* at(long offset) const { return reinterpret_cast<const char*>(buffer_.data()) + offset * (is_bfloat16_ ? 2 : 4); }
    void put(long offset, const float* from, int count) {
        if (is_bfloat16_) kernels_.to_bfloat16(from, count, reinterpret_cast<uint16_t*>(buffer_.data()) + offset);
        else std::memcpy(buffer_.data() + offset, from, count * sizeof(float));
    }

  private:
    const Kernels& kernels_;
    bool is_bfloat16_;
    Buffer<float> buffer_;
};

// The encoder output as keys and values for cross-attention: token r of layer l at offset(l, r).
struct Memory {
    Memory(const Model& model, const Kernels& kernels) : cache(model, kernels) {}
    KeyValueCache cache;
    long num_rows = 0, stride = 0;
    const long* starts = nullptr; // first row of each sentence, and the number of rows

    long offset(long layer, long row) const { return (layer * num_rows + row) * stride; }
};

class Encoder : LayerOps {
  public:
    using LayerOps::LayerOps;
    void read(const int32_t* tokens, const long* starts, int num_sentences, Memory& memory);

  private:
    void attend(const EncoderLayer& layer, const long* starts, const int* sentence_of, int longest);
    Buffer<float> scores_;
    Buffer<long> offsets_;
    Buffer<int> sentences_;
};

} // namespace heedful
