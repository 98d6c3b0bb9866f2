// The encoder: all tokens of all sentences as rows without padding, and what each decoder layer needs of them.
#pragma once

#include "stack.h"

namespace heedful {

// Keys and values of the encoded sources for every decoder layer: token r of layer l at at(l) + r · stride.
struct Memory {
    Buffer<float> room;
    long num_rows = 0, stride = 0;
    const long* starts = nullptr; // of each sentence's rows, and the end of the last

    float* at(long layer) const { return room.data() + layer * num_rows * stride; }
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
