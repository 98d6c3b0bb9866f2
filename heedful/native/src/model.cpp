#include "model.h"

#include <cstring>

namespace heedful {

#if !defined(__wasm__)
Model::Model(const std::string& path, ThreadPool& pool) : file(path, pool), shape(file.shape()) { read_tensors(path, pool); }
#endif

Model::Model(const unsigned char* contents, size_t size, ThreadPool& pool) : file(contents, size), shape(file.shape()) {
    read_tensors("the weight file", pool);
}

void Model::read_tensors(const std::string& path, ThreadPool& pool) {
    if (shape.tied_embedding && shape.source_vocab_size != shape.target_vocab_size) fail(path + " is damaged: one table for two vocabularies");
    output = linear("output", shape.d_model, shape.target_vocab_size);
    target_embedding = embedding(shape.tied_embedding ? "source_embedding" : "target_embedding", shape.target_vocab_size);
    source_embedding = shape.tied_embedding ? target_embedding : embedding("source_embedding", shape.source_vocab_size);
    if (shape.rotary) {
        turns = file.floats("turns", shape.max_length, shape.head_dim);
    } else {
        source_positions = file.floats("source_positions", shape.max_length, shape.d_model);
        target_positions = file.has("target_positions")
                               ? file.floats("target_positions", shape.max_length, shape.d_model)
                               : source_positions;
    }
    for (int i = 0; i < shape.num_encoder_layers; ++i) {
        const std::string name = "encoder." + std::to_string(i);
        encoder.push_back({linear(name + ".self.input", shape.d_model, 3 * inner()),
                           linear(name + ".self.output", inner(), shape.d_model), norm(name + ".self.norm"),
                           feed_forward(name + ".feed_forward")});
    }
    for (int i = 0; i < shape.num_decoder_layers; ++i) {
        const std::string name = "decoder." + std::to_string(i);
        decoder.push_back({linear(name + ".self.input", shape.d_model, 3 * inner()),
                           linear(name + ".self.output", inner(), shape.d_model), norm(name + ".self.norm"),
                           linear(name + ".cross.query", shape.d_model, inner()),
                           linear(name + ".cross.memory", shape.d_model, 2 * inner()),
                           linear(name + ".cross.output", inner(), shape.d_model), norm(name + ".cross.norm"),
                           feed_forward(name + ".feed_forward")});
    }
    if (shape.has_final_norm) {
        encoder_norm = norm("encoder.norm");
        decoder_norm = norm("decoder.norm");
    }
    if (shape.int8) copy_input_major(pool);
}

namespace {

size_t input_major_size(const Linear& linear) { return static_cast<size_t>(linear.num_spans) * SPAN * linear.padded_inputs; }

// Convert tiles with interleaved inputs to one row per input.
void unpack_input_major(const Linear& linear, int8_t* to) {
    const long stride = static_cast<long>(linear.num_spans) * SPAN;
    std::memset(to, 0, input_major_size(linear));
    const int8_t* four = linear.weights;
    for (long tile = 0; tile < linear.num_tiles; ++tile)
        for (long input = 0; input < linear.padded_inputs; input += 4, four += 4 * TILE)
            for (long i = 0; i < 4; ++i)
                for (long output = 0; output < TILE; ++output) to[(input + i) * stride + tile * TILE + output] = four[output * 4 + i];
}

} // namespace

// Matrices after relu get an input-major copy: most inputs are zero, and for a few rows only the weights of nonzero inputs
// are read.
void Model::copy_input_major(ThreadPool& pool) {
    constexpr size_t AHEAD = 16384; // kernels prefetch past the end
    if (shape.activation != RELU) return;
    size_t size = AHEAD;
    for (DecoderLayer& layer : decoder) {
        Linear& one = layer.feed_forward.output;
        one.num_spans = static_cast<int>(padded(shape.d_model, SPAN) / SPAN);
        size += input_major_size(one);
    }
    int8_t* free = input_major_.reserve(size);
    std::vector<int8_t*> copies;
    for (const DecoderLayer& layer : decoder) copies.push_back(free), free += input_major_size(layer.feed_forward.output);
    pool.each(static_cast<long>(decoder.size()), [&](long i, int) {
        Linear& one = decoder[i].feed_forward.output;
        one.input_major = copies[i];
        unpack_input_major(one, copies[i]);
    });
}

// An embedding table that the file lacks is the matrix of the output layer, which has the same size.
Embedding Model::embedding(const std::string& name, int vocab_size) const {
    Embedding found;
    found.width = shape.d_model;
    if (!shape.int8) {
        found.floats = file.floats(name, vocab_size, shape.d_model);
    } else if (!file.has(name) && vocab_size == shape.target_vocab_size) {
        found.output = &output;
    } else {
        found.values = static_cast<const int8_t*>(file.tensor(name, INT8, vocab_size, shape.d_model));
        found.scales = file.floats(name + ".scales", 1, vocab_size);
    }
    return found;
}

void Embedding::read(int32_t token, float* to) const {
    const long row = token;
    if (floats) {
        std::memcpy(to, floats + row * width, width * sizeof(float));
    } else if (values) {
        for (long i = 0; i < width; ++i) to[i] = static_cast<float>(values[row * width + i]) * scales[row];
    } else {
        const int8_t* tile = output->weights + row / TILE * TILE * output->padded_inputs + row % TILE * 4;
        for (long i = 0; i < width; ++i) to[i] = static_cast<float>(tile[i / 4 * TILE * 4 + i % 4]) * output->scales[row];
    }
}

Linear Model::linear(const std::string& name, int inputs, int outputs) const {
    Linear found;
    found.inputs = inputs, found.outputs = outputs;
    found.padded_inputs = static_cast<int>(padded(inputs, STEP));
    found.num_tiles = static_cast<int>(padded(outputs, TILE) / TILE);
    const long rows = static_cast<long>(found.num_tiles) * TILE;
    if (shape.int8) {
        found.weights = static_cast<const int8_t*>(file.tensor(name + ".weights", INT8, rows, found.padded_inputs));
        found.scales = file.floats(name + ".scales", 1, rows);
        found.sums = static_cast<const int32_t*>(file.tensor(name + ".sums", INT32, 1, rows));
    } else {
        found.floats = file.floats(name + ".weights", rows, found.padded_inputs);
    }
    found.bias = file.floats(name + ".bias", 1, rows);
    return found;
}

Norm Model::norm(const std::string& name) const {
    Norm found;
    found.weight = file.floats(name + ".weight", 1, shape.d_model);
    found.bias = file.has(name + ".bias") ? file.floats(name + ".bias", 1, shape.d_model) : nullptr;
    found.epsilon = shape.norm_epsilon;
    found.only_scale = shape.only_scale;
    return found;
}

FeedForward Model::feed_forward(const std::string& name) const {
    return {linear(name + ".input", shape.d_model, feed_forward_inputs()), linear(name + ".output", shape.d_ff, shape.d_model),
            norm(name + ".norm")};
}

} // namespace heedful
