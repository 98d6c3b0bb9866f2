// The encoder: all tokens of all sentences as rows without padding, and what each decoder layer needs of them.
#pragma once

#include <cstring>

#include "layer_ops.h"

namespace heedful {

// Keys and values: bfloat16 beside int8 weights, where reading them is most of the work of attending, else float32.
class Kept {
  public:
    Kept(const Model& model, const Kernels& kernels) : kernels_(kernels), halves_(model.shape.int8) {}
    bool halves() const { return halves_; }
    void room(size_t count) { room_.room(halves_ ? (count + 1) / 2 : count); }
    const void* at(long place) const { return reinterpret_cast<const char*>(room_.data()) + place * (halves_ ? 2 : 4); }
    void put(long place, const float* from, int count) {
        if (halves_) kernels_.halve(from, count, reinterpret_cast<uint16_t*>(room_.data()) + place);
        else std::memcpy(room_.data() + place, from, count * sizeof(float));
    }

  private:
    const Kernels& kernels_;
    bool halves_;
    Buffer<float> room_;
};

// What the decoder needs of the encoded sources: keys and values of token r for layer l at place(l, r).
struct Memory {
    Memory(const Model& model, const Kernels& kernels) : kept(model, kernels) {}
    Kept kept;
    long num_rows = 0, stride = 0;
    const long* starts = nullptr; // of each sentence's rows, and the end of the last

    long place(long layer, long row) const { return (layer * num_rows + row) * stride; }
};

class Encoder : Stack {
  public:
    using Stack::Stack;
    void read(const int32_t* tokens, const long* starts, int num_sentences, Memory& memory);

  private:
    void attend(const EncoderLayer& layer, const long* starts, const int* sentence_of, int longest);
    Buffer<float> scores_;
    Buffer<long> offsets_;
    Buffer<int> sentences_;
};

} // namespace heedful
