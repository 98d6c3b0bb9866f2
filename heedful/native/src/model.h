// The weights of a model.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "buffer.h"
#include "kernels.h"
#include "weight_file.h"

namespace heedful {

struct FeedForward {
    Linear input, output; // for SwiGLU, the input holds the inner layer, then the gate
    Norm norm;
};

struct EncoderLayer {
    Linear self_input, self_output; // the input projects to queries, keys and values
    Norm self_norm;
    FeedForward feed_forward;
};

struct DecoderLayer {
    Linear self_input, self_output;
    Norm self_norm;
    Linear cross_query, cross_memory, cross_output; // the memory projects to keys and values
    Norm cross_norm;
    FeedForward feed_forward;
};

// An embedding table: float32, int8 with a scale per row, or the weights of the output layer.
struct Embedding {
    const float* floats = nullptr;
    const int8_t* values = nullptr;
    const float* scales = nullptr;
    const Linear* output = nullptr;
    int width = 0;

    void read(int32_t token, float* to) const;
};

struct Model {
    Model(const std::string& path, ThreadPool& pool);
    // A weight file in memory.
    Model(const unsigned char* contents, size_t size, ThreadPool& pool);

    WeightFile file;
    const Shape& shape;
    Embedding source_embedding, target_embedding;
    const float *source_positions = nullptr, *target_positions = nullptr, *turns = nullptr;
    std::vector<EncoderLayer> encoder;
    std::vector<DecoderLayer> decoder;
    Norm encoder_norm, decoder_norm;
    Linear output;

    int inner() const { return shape.num_heads * shape.head_dim; }
    // The output layer with two bits per weight; int8 only.
    const Sketch& sketch(const Kernels& kernels, ThreadPool& pool) const;
    int feed_forward_inputs() const { return shape.activation == SWIGLU ? 2 * shape.d_ff : shape.d_ff; }

  private:
    Linear linear(const std::string& name, int inputs, int outputs) const;
    Embedding embedding(const std::string& name, int vocab_size) const;
    Norm norm(const std::string& name) const;
    FeedForward feed_forward(const std::string& name) const;
    void read_tensors(const std::string& path, ThreadPool& pool);
    void copy_input_major(ThreadPool& pool);

    Buffer<int8_t> input_major_; // input-major copies of the matrices after relu
    mutable Mutex sketch_mutex_;
    mutable Sketch sketch_;
    mutable Buffer<uint8_t> codes_;
    mutable Buffer<int32_t> code_sums_;
    mutable Buffer<float> steps_;
};

inline long padded(long count, long unit) { return (count + unit - 1) / unit * unit; }

} // namespace heedful
