// A traced forward pass: one sentence pair in float32, with the intermediate results that the caller requests.
//
// Weights are used as stored: int8 weights are multiplied as floats, activations are not quantized. The pass can be changed
// by interventions, such as removing a head, and can continue the target greedily.
#pragma once

#include <string>
#include <vector>

#include "c_api.h"
#include "layer_ops.h"
#include "output_layer.h"
#include "utf8_automaton.h"

namespace heedful {

struct TraceTensor {
    std::string name;
    std::vector<int64_t> shape;
    std::vector<float> values;
};

struct Trace {
    std::vector<int32_t> target; // the given target and the tokens that were added, the start token first, without the end token
    std::vector<TraceTensor> tensors;
};

class Tracer {
  public:
    Tracer(const Model& model, const Kernels& kernels, ThreadPool& pool);
    Trace run(const HeedfulSettings& settings, const HeedfulTraceRequest& request);

  private:
    struct Matrix { // rows with a stride
        Buffer<float> buffer;
        long stride = 0;
        float* row(long i) const { return buffer.data() + i * stride; }
        void reserve(long num_rows, long width);
    };
    // A sublayer: its stack (0 encoder, 1 decoder), its kind (0 self-attention, 1 cross-attention, 2 feed-forward), its layer.
    struct Place {
        int stack, sublayer, layer;
        std::string name() const;
    };
    // Keys and values of self-attention of the decoder and of cross-attention, for each layer.
    struct LayerCache {
        Matrix self, memory;
    };

    void check(const HeedfulSettings& settings, const HeedfulTraceRequest& request) const;
    void prepare(long num_source, long num_target);
    void encode();
    // Run the decoder on rows [first, end); earlier rows are in the cache.
    void decode(const std::vector<int32_t>& target, long first, long end);
    void extend_greedily(std::vector<int32_t>& target);
    void embed(const char* side, int stack, const std::vector<int32_t>& tokens, const Embedding& table, const float* positions, long first, long end);
    void attention_sublayer(Place place, const Linear& input, const Linear& output, const Norm& norm, Matrix& keys_values, long num_keys, long first, long end);
    void attend(Place place, const Matrix& queries, const Matrix& keys_values, long num_keys, long first, long end);
    void feed_forward_sublayer(Place place, const FeedForward& layer, long first, long end);
    // The input of a sublayer: the residual stream, normalized in pre-norm models.
    const Matrix& sublayer_input(Place place, const Norm& norm, long first, long end);
    // Add the output of a sublayer to the residual stream; normalized in post-norm models.
    void add_residual(Place place, const Norm& norm, long first, long end);
    void normalize(const std::string& name, const Norm& norm, const Matrix& from, Matrix& to, long first, long end);
    void multiply(const Linear& linear, const Matrix& from, Matrix& to, long first, long end, long to_first);
    void logits(const std::string& name, const std::string& probabilities, const Matrix& from, long first, long end);

    bool has_positions(int stack) const;
    void change_weights(Place place, int head, long query, long visible, float* weights) const;
    // The first intervention of this kind at a place; head -1: one that concerns all heads.
    const HeedfulIntervention* find(int kind, Place place, int head) const;
    bool is_wanted(const std::string& name) const;
    // Storage for a tensor, or null if it is not wanted.
    float* record(const std::string& name, std::vector<int64_t> shape);
    void record_rows(const std::string& name, const Matrix& from, long first, long end, int width);
    void record_heads(const std::string& name, const Matrix& from, long num_rows, long offset);
    // Whether a wanted pattern is exactly this name.
    bool is_named(const std::string& name) const;
    void record_parameters();
    void record_linear(const std::string& name, const Linear& linear, long first, const std::vector<int64_t>& outputs);
    void record_norm_parameters(const std::string& name, const Norm& norm);

    const Model& model_;
    const Kernels& kernels_;
    ThreadPool& pool_;
    std::vector<int32_t> source_;
    std::vector<HeedfulIntervention> interventions_;
    std::vector<std::string> wanted_;
    HeedfulSettings settings_{};
    int64_t max_length_ = 0, recorded_ = 0;
    Trace* trace_ = nullptr; // null while nothing is recorded
    Matrix x_, normed_, wide_, narrow_, output_logits_;
    std::vector<LayerCache> caches_;
    Buffer<float> scores_, scratch_;
    Buffer<long> offsets_;
    long score_stride_ = 0;
};

} // namespace heedful
