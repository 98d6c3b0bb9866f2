#include "trace.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

namespace heedful {
namespace {

constexpr int ENCODER = 0, DECODER = 1;
constexpr int SELF_ATTENTION = 0, CROSS_ATTENTION = 1, FEED_FORWARD = 2;
constexpr int ALL = -1;
constexpr int64_t MAX_RECORDED = int64_t{1} << 29; // floats
constexpr float NEGATIVE_INFINITY = -std::numeric_limits<float>::infinity();

// Whether a name matches a pattern, in which * stands for any text.
bool matches(const char* pattern, const char* name) {
    if (*pattern == '*') return matches(pattern + 1, name) || (*name && matches(pattern, name + 1));
    return *pattern == *name && (!*pattern || matches(pattern + 1, name + 1));
}

} // namespace

Tracer::Tracer(const Model& model, const Kernels& kernels, ThreadPool& pool) : model_(model), kernels_(kernels), pool_(pool), caches_(model.decoder.size()) {}

void Tracer::Matrix::reserve(long num_rows, long width) {
    stride = padded(width, TILE) + 16;
    buffer.reserve(num_rows * stride);
}

std::string Tracer::Place::name() const {
    static const char* const SUBLAYERS[] = {".self_attention", ".cross_attention", ".feed_forward"};
    return (stack == ENCODER ? "encoder.layers." : "decoder.layers.") + std::to_string(layer) + SUBLAYERS[sublayer];
}

void Tracer::check(const HeedfulSettings& settings, const HeedfulTraceRequest& request) const {
    const Shape& shape = model_.shape;
    const auto check_tokens = [](const int32_t* tokens, int64_t count, int32_t vocab_size) {
        for (int64_t i = 0; i < count; ++i)
            if (tokens[i] < 0 || tokens[i] >= vocab_size)
                fail("token " + std::to_string(tokens[i]) + " is not in the vocabulary of " + std::to_string(vocab_size));
    };
    const auto check_length = [&](const char* side, int64_t length) {
        if (length < 1 || length > shape.max_length)
            fail(std::string("the ") + side + " has " + std::to_string(length) + " tokens, and the model takes 1 to " + std::to_string(shape.max_length));
    };
    check_length("source", request.source_length);
    check_length("target", request.target_length);
    if (request.max_length < 0 || request.max_length > shape.max_length - 1)
        fail("max_length is from 0 to " + std::to_string(shape.max_length - 1) + ", not " + std::to_string(request.max_length));
    check_tokens(request.source, request.source_length, shape.source_vocab_size);
    check_tokens(request.target, request.target_length, shape.target_vocab_size);
    check_tokens(&settings.eos_id, 1, shape.target_vocab_size);
    if (settings.num_forbidden < 0 || request.num_interventions < 0) fail("a count is negative");
    check_tokens(settings.forbidden, settings.num_forbidden, shape.target_vocab_size);
    if (settings.byte_ids) check_tokens(settings.byte_ids, Utf8Automaton::BYTES, shape.target_vocab_size);
    const auto check_range = [](const char* name, int64_t value, int64_t least, int64_t end) {
        if (value < least || value >= end)
            fail(std::string("an intervention's ") + name + " is " + std::to_string(value) + "; it must be from " + std::to_string(least) + " to " + std::to_string(end - 1));
    };
    for (int i = 0; i < request.num_interventions; ++i) {
        const HeedfulIntervention& one = request.interventions[i];
        check_range("kind", one.kind, HEEDFUL_REMOVE, HEEDFUL_NO_POSITIONS + 1);
        check_range("stack", one.stack, ENCODER, DECODER + 1);
        check_range("sublayer", one.sublayer, ALL, FEED_FORWARD + 1);
        check_range("layer", one.layer, ALL, one.stack == ENCODER ? shape.num_encoder_layers : shape.num_decoder_layers);
        check_range("head", one.head, ALL, shape.num_heads);
        if (one.stack == ENCODER && one.sublayer == CROSS_ATTENTION) fail("the encoder has no cross-attention");
        if (one.kind != HEEDFUL_SET_WEIGHT) continue;
        check_range("query", one.query, 0, shape.max_length);
        check_range("key", one.key, 0, shape.max_length);
        if (!(one.value >= 0.0f && one.value <= 1.0f)) fail("an attention weight must be from 0 to 1");
    }
}

Trace Tracer::run(const HeedfulSettings& settings, const HeedfulTraceRequest& request) {
    check(settings, request);
    settings_ = settings;
    max_length_ = request.max_length;
    source_.assign(request.source, request.source + request.source_length);
    interventions_.assign(request.interventions, request.interventions + request.num_interventions);
    wanted_.clear();
    for (const char* from = request.wanted; *from;) {
        const char* end = from + std::strcspn(from, "\n");
        wanted_.emplace_back(from, end);
        from = *end ? end + 1 : end;
    }
    Trace trace;
    trace.target.assign(request.target, request.target + request.target_length);
    recorded_ = 0;
    prepare(request.source_length, std::max(request.max_length + 1, request.target_length));
    trace_ = &trace;
    encode();
    record_parameters();
    trace_ = nullptr;
    extend_greedily(trace.target);
    trace_ = &trace;
    decode(trace.target, 0, static_cast<long>(trace.target.size()));
    trace_ = nullptr;
    return trace;
}

void Tracer::prepare(long num_source, long num_target) {
    const Shape& shape = model_.shape;
    const long rows = std::max(num_source, num_target), inner = model_.inner();
    x_.reserve(rows, shape.d_model);
    normed_.reserve(rows, shape.d_model);
    narrow_.reserve(rows, std::max<long>(shape.d_model, inner));
    wide_.reserve(rows, std::max<long>(3 * inner, model_.feed_forward_inputs()));
    for (LayerCache& cache : caches_) {
        cache.self.reserve(num_target, 2 * inner);
        cache.memory.reserve(num_source, 2 * inner);
    }
    score_stride_ = padded(rows, 16) + 16;
    scores_.reserve(pool_.size() * shape.num_heads * score_stride_);
    scratch_.reserve(pool_.size() * padded(std::max({static_cast<long>(shape.d_model), inner, static_cast<long>(shape.d_ff)}), STEP) * TILE);
    offsets_.reserve(rows);
}

bool Tracer::is_wanted(const std::string& name) const {
    return trace_ && std::any_of(wanted_.begin(), wanted_.end(), [&](const std::string& pattern) { return matches(pattern.c_str(), name.c_str()); });
}

bool Tracer::is_named(const std::string& name) const { return std::find(wanted_.begin(), wanted_.end(), name) != wanted_.end(); }

float* Tracer::record(const std::string& name, std::vector<int64_t> shape) {
    if (!is_wanted(name)) return nullptr;
    int64_t count = 1;
    for (int64_t size : shape) count *= size;
    recorded_ += count;
    if (recorded_ > MAX_RECORDED) fail("the tensors of this trace would take more than 2 GB; name those that are needed (wanted)");
    trace_->tensors.push_back({name, std::move(shape), std::vector<float>(count)});
    return trace_->tensors.back().values.data();
}

void Tracer::record_rows(const std::string& name, const Matrix& from, long first, long end, int width) {
    float* to = record(name, {end - first, width});
    if (!to) return;
    for (long row = first; row < end; ++row) std::memcpy(to + (row - first) * width, from.row(row), width * sizeof(float));
}

// Record columns of a matrix, from `offset` on, as (head, row, feature).
void Tracer::record_heads(const std::string& name, const Matrix& from, long num_rows, long offset) {
    const long dim = model_.shape.head_dim;
    float* to = record(name, {model_.shape.num_heads, num_rows, dim});
    if (!to) return;
    for (long head = 0; head < model_.shape.num_heads; ++head)
        for (long row = 0; row < num_rows; ++row, to += dim) std::memcpy(to, from.row(row) + offset + head * dim, dim * sizeof(float));
}

// Record the weights of a linear layer, as stored, and its bias, for outputs from `first` on; `outputs` is the shape of the outputs.
void Tracer::record_linear(const std::string& name, const Linear& linear, long first, const std::vector<int64_t>& outputs) {
    long count = 1;
    for (int64_t size : outputs) count *= size;
    if (is_named(name + "_bias"))
        if (float* to = record(name + "_bias", outputs)) std::memcpy(to, linear.bias + first, count * sizeof(float));
    if (!is_named(name + "_weight")) return;
    std::vector<int64_t> shape = outputs;
    shape.push_back(linear.inputs);
    float* to = record(name + "_weight", shape);
    const std::vector<float> zeros(static_cast<size_t>(linear.num_tiles) * TILE);
    Linear without_bias = linear;
    without_bias.bias = zeros.data();
    Matrix unit, column; // the product with a unit vector is a column of the weights
    unit.reserve(1, linear.padded_inputs);
    column.reserve(1, static_cast<long>(linear.num_tiles) * TILE);
    std::fill_n(unit.row(0), unit.stride, 0.0f);
    scratch_.reserve(pool_.size() * static_cast<size_t>(linear.padded_inputs) * TILE);
    for (long input = 0; input < linear.inputs; ++input) {
        unit.row(0)[input] = 1.0f;
        multiply(without_bias, unit, column, 0, 1, 0);
        unit.row(0)[input] = 0.0f;
        for (long output = 0; output < count; ++output) to[output * linear.inputs + input] = column.row(0)[first + output];
    }
}

void Tracer::record_norm_parameters(const std::string& name, const Norm& norm) {
    const int64_t width = model_.shape.d_model;
    if (is_named(name + ".weight")) std::memcpy(record(name + ".weight", {width}), norm.weight, width * sizeof(float));
    if (!is_named(name + ".bias")) return;
    float* to = record(name + ".bias", {width});
    if (norm.bias) std::memcpy(to, norm.bias, width * sizeof(float));
}

// Parameters are recorded only if a wanted name is theirs, without *: together they are as large as the model.
void Tracer::record_parameters() {
    const Shape& shape = model_.shape;
    const long inner = model_.inner();
    const std::vector<int64_t> heads = {shape.num_heads, shape.head_dim}, width = {shape.d_model}, units = {shape.d_ff};
    const auto attention = [&](Place place, const Linear& query, const Linear& memory, const Linear& output, const Norm& norm) {
        const std::string name = place.name();
        const long first = &query == &memory ? inner : 0; // one layer for all three, or another for keys and values
        record_linear(name + ".query", query, 0, heads);
        record_linear(name + ".key", memory, first, heads);
        record_linear(name + ".value", memory, first + inner, heads);
        record_linear(name + ".output", output, 0, width);
        record_norm_parameters(name + "_norm", norm);
    };
    const auto feed_forward = [&](Place place, const FeedForward& layer) {
        const std::string name = place.name();
        record_linear(name + ".input", layer.input, 0, units);
        if (shape.activation == SWIGLU) record_linear(name + ".gate", layer.input, shape.d_ff, units);
        record_linear(name + ".output", layer.output, 0, width);
        record_norm_parameters(name + "_norm", layer.norm);
    };
    for (int i = 0; i < static_cast<int>(model_.encoder.size()); ++i) {
        const EncoderLayer& layer = model_.encoder[i];
        attention({ENCODER, SELF_ATTENTION, i}, layer.self_input, layer.self_input, layer.self_output, layer.self_norm);
        feed_forward({ENCODER, FEED_FORWARD, i}, layer.feed_forward);
    }
    for (int i = 0; i < static_cast<int>(model_.decoder.size()); ++i) {
        const DecoderLayer& layer = model_.decoder[i];
        attention({DECODER, SELF_ATTENTION, i}, layer.self_input, layer.self_input, layer.self_output, layer.self_norm);
        attention({DECODER, CROSS_ATTENTION, i}, layer.cross_query, layer.cross_memory, layer.cross_output, layer.cross_norm);
        feed_forward({DECODER, FEED_FORWARD, i}, layer.feed_forward);
    }
    if (!shape.has_final_norm) return;
    record_norm_parameters("encoder.norm", model_.encoder_norm);
    record_norm_parameters("decoder.norm", model_.decoder_norm);
}

const HeedfulIntervention* Tracer::find(int kind, Place place, int head) const {
    for (const HeedfulIntervention& one : interventions_)
        if (one.kind == kind && one.stack == place.stack && (one.sublayer == ALL || one.sublayer == place.sublayer) &&
            (one.layer == ALL || one.layer == place.layer) && (one.head == ALL || one.head == head))
            return &one;
    return nullptr;
}

bool Tracer::has_positions(int stack) const {
    return std::none_of(interventions_.begin(), interventions_.end(),
                        [&](const HeedfulIntervention& one) { return one.kind == HEEDFUL_NO_POSITIONS && one.stack == stack; });
}

// Change the attention weights of one query and head, which sum to 1.
void Tracer::change_weights(Place place, int head, long query, long visible, float* weights) const {
    if (find(HEEDFUL_UNIFORM, place, head)) std::fill(weights, weights + visible, 1.0f / static_cast<float>(visible));
    std::vector<const HeedfulIntervention*> set(visible, nullptr);
    bool is_changed = false;
    for (const HeedfulIntervention& one : interventions_)
        if (one.kind == HEEDFUL_SET_WEIGHT && one.query == query && one.key < visible && one.stack == place.stack &&
            one.sublayer == place.sublayer && one.layer == place.layer && one.head == head)
            set[one.key] = &one, is_changed = true;
    if (!is_changed) return;
    float given = 0.0f, rest = 0.0f;
    for (long key = 0; key < visible; ++key) (set[key] ? given : rest) += set[key] ? set[key]->value : weights[key];
    const float scale = rest > 0.0f ? std::max(0.0f, 1.0f - given) / rest : 0.0f; // keeps the sum
    for (long key = 0; key < visible; ++key) weights[key] = set[key] ? set[key]->value : weights[key] * scale;
}

void Tracer::multiply(const Linear& linear, const Matrix& from, Matrix& to, long first, long end, long to_first) {
    const long size = static_cast<long>(linear.padded_inputs) * TILE;
    pool_.each(linear.num_tiles, [&](long tile, int thread) {
        kernels_.multiply_float_rows(linear, from.row(first), from.stride, end - first, static_cast<int>(tile), scratch_.data() + thread * size,
                                     to.row(to_first) + tile * TILE, to.stride);
    });
}

void Tracer::normalize(const std::string& name, const Norm& norm, const Matrix& from, Matrix& to, long first, long end) {
    const int width = model_.shape.d_model;
    record_rows(name + ".input", from, first, end, width);
    float* means = record(name + ".mean", {end - first});
    float* deviations = record(name + ".deviation", {end - first});
    for_each_row(pool_, end - first, [&](long i, int) {
        float statistics[2];
        kernels_.normalize(from.row(first + i), width, norm, to.row(first + i), statistics);
        if (means) means[i] = statistics[0];
        if (deviations) deviations[i] = statistics[1];
    });
    record_rows(name + ".output", to, first, end, width);
}

const Tracer::Matrix& Tracer::sublayer_input(Place place, const Norm& norm, long first, long end) {
    record_rows(place.name() + ".residual_before", x_, first, end, model_.shape.d_model);
    if (!model_.shape.norm_before) return x_;
    normalize(place.name() + "_norm", norm, x_, normed_, first, end);
    return normed_;
}

void Tracer::add_residual(Place place, const Norm& norm, long first, long end) {
    const int width = model_.shape.d_model;
    if (find(HEEDFUL_REMOVE, place, ALL))
        for (long row = first; row < end; ++row) std::memset(narrow_.row(row), 0, width * sizeof(float));
    record_rows(place.name() + ".output", narrow_, first, end, width);
    for (long row = first; row < end; ++row) kernels_.add(x_.row(row), narrow_.row(row), width);
    if (!model_.shape.norm_before) normalize(place.name() + "_norm", norm, x_, x_, first, end);
    record_rows(place.name() + ".residual_after", x_, first, end, width);
}

void Tracer::embed(const char* side, int stack, const std::vector<int32_t>& tokens, const Embedding& table, const float* positions, long first, long end) {
    const int width = model_.shape.d_model;
    const std::string name = side;
    if (!has_positions(stack)) positions = nullptr;
    for (long row = first; row < end; ++row) {
        table.read(tokens[row], x_.row(row));
        kernels_.embed(x_.row(row), model_.shape.embedding_scale, nullptr, width, x_.row(row));
    }
    record_rows(name + "_embedding", x_, first, end, width);
    if (positions) {
        if (float* to = record(name + "_positions", {end - first, width})) std::memcpy(to, positions + first * width, (end - first) * width * sizeof(float));
        for (long row = first; row < end; ++row) kernels_.add(x_.row(row), positions + row * width, width);
    }
    record_rows(stack == ENCODER ? "encoder.input" : "decoder.input", x_, first, end, width);
}

void Tracer::attend(Place place, const Matrix& queries, const Matrix& keys_values, long num_keys, long first, long end) {
    const Shape& shape = model_.shape;
    const long num_heads = shape.num_heads, num_queries = end - first;
    const bool is_causal = place.stack == DECODER && place.sublayer == SELF_ATTENTION;
    const float scale = find(HEEDFUL_UNSCALED, place, ALL) ? 1.0f : shape.attention_scale;
    const std::string name = place.name();
    float* scores = record(name + ".scores", {num_heads, num_queries, num_keys});
    float* scaled = record(name + ".scaled_scores", {num_heads, num_queries, num_keys});
    float* mask = record(name + ".mask", {num_queries, num_keys});
    float* all_weights = record(name + ".weights", {num_heads, num_queries, num_keys});
    long* offsets = offsets_.data();
    for (long t = 0; t < num_keys; ++t) offsets[t] = t * keys_values.stride;
    for_each_row(pool_, num_queries, [&](long i, int thread) {
        const long query = first + i, visible = is_causal ? query + 1 : num_keys, shown = scores || scaled ? num_keys : visible;
        float* weights = scores_.data() + thread * num_heads * score_stride_;
        AttentionArguments arguments = {keys_values.row(0), false, offsets, static_cast<int>(shown), model_.inner(), shape.num_heads, shape.head_dim, 1.0f, score_stride_};
        kernels_.attention_scores(queries.row(query), arguments, weights);
        for (long head = 0; head < num_heads; ++head) {
            float* row = weights + head * score_stride_;
            const long to = (head * num_queries + i) * num_keys;
            if (scores) std::memcpy(scores + to, row, num_keys * sizeof(float));
            for (long key = 0; key < shown; ++key) row[key] *= scale;
            if (scaled) std::memcpy(scaled + to, row, num_keys * sizeof(float));
        }
        if (mask)
            for (long key = visible; key < num_keys; ++key) mask[i * num_keys + key] = NEGATIVE_INFINITY;
        kernels_.attention_softmax(weights, shape.num_heads, score_stride_, static_cast<int>(visible));
        for (long head = 0; head < num_heads; ++head) {
            float* row = weights + head * score_stride_;
            if (!interventions_.empty()) change_weights(place, static_cast<int>(head), query, visible, row);
            if (all_weights) std::memcpy(all_weights + (head * num_queries + i) * num_keys, row, visible * sizeof(float));
        }
        arguments.count = static_cast<int>(visible);
        kernels_.attention_values(weights, arguments, narrow_.row(query));
        for (long head = 0; head < num_heads; ++head)
            if (find(HEEDFUL_REMOVE, place, static_cast<int>(head))) std::fill_n(narrow_.row(query) + head * shape.head_dim, shape.head_dim, 0.0f);
    });
    if (float* to = record(name + ".head_outputs", {num_heads, num_queries, shape.head_dim}))
        for (long head = 0; head < num_heads; ++head)
            for (long i = 0; i < num_queries; ++i, to += shape.head_dim) std::memcpy(to, narrow_.row(first + i) + head * shape.head_dim, shape.head_dim * sizeof(float));
}

void Tracer::attention_sublayer(Place place, const Linear& input, const Linear& output, const Norm& norm, Matrix& keys_values, long num_keys, long first, long end) {
    const Shape& shape = model_.shape;
    const long inner = model_.inner();
    const std::string name = place.name();
    multiply(input, sublayer_input(place, norm, first, end), wide_, first, end, first);
    const bool is_self = place.sublayer == SELF_ATTENTION;
    if (is_self) { // the input layer gives queries, keys and values
        if (model_.turns && has_positions(place.stack))
            for (long row = first; row < end; ++row) kernels_.rotate(wide_.row(row), 2 * shape.num_heads, shape.head_dim, model_.turns + row * shape.head_dim);
        for (long row = first; row < end; ++row) std::memcpy(keys_values.row(row), wide_.row(row) + inner, 2 * inner * sizeof(float));
    }
    if (first == 0) {
        record_heads(name + ".query", wide_, end, 0);
        record_heads(name + ".key", keys_values, num_keys, 0);
        record_heads(name + ".value", keys_values, num_keys, inner);
    }
    attend(place, wide_, keys_values, num_keys, first, end);
    // The output layer reads the heads' results from where it writes its own: they are copied first.
    for (long row = first; row < end; ++row) std::memcpy(wide_.row(row), narrow_.row(row), inner * sizeof(float));
    multiply(output, wide_, narrow_, first, end, first);
    add_residual(place, norm, first, end);
}

void Tracer::feed_forward_sublayer(Place place, const FeedForward& layer, long first, long end) {
    const Shape& shape = model_.shape;
    const std::string name = place.name();
    multiply(layer.input, sublayer_input(place, layer.norm, first, end), wide_, first, end, first);
    record_rows(name + ".pre_activation", wide_, first, end, shape.d_ff);
    if (shape.activation == SWIGLU)
        if (float* to = record(name + ".gate", {end - first, shape.d_ff}))
            for (long row = first; row < end; ++row, to += shape.d_ff) std::memcpy(to, wide_.row(row) + shape.d_ff, shape.d_ff * sizeof(float));
    for_each_row(pool_, end - first, [&](long i, int) {
        float* row = wide_.row(first + i);
        if (shape.activation == SWIGLU) kernels_.gate(row, row + shape.d_ff, shape.d_ff, row);
        else kernels_.activate(row, shape.d_ff, shape.activation);
    });
    record_rows(name + ".post_activation", wide_, first, end, shape.d_ff);
    multiply(layer.output, wide_, narrow_, first, end, first);
    add_residual(place, layer.norm, first, end);
}

void Tracer::encode() {
    const long count = static_cast<long>(source_.size());
    embed("source", ENCODER, source_, model_.source_embedding, model_.source_positions, 0, count);
    Matrix& keys_values = caches_[0].memory;
    for (size_t i = 0; i < model_.encoder.size(); ++i) {
        const EncoderLayer& layer = model_.encoder[i];
        const int index = static_cast<int>(i);
        attention_sublayer({ENCODER, SELF_ATTENTION, index}, layer.self_input, layer.self_output, layer.self_norm, keys_values, count, 0, count);
        feed_forward_sublayer({ENCODER, FEED_FORWARD, index}, layer.feed_forward, 0, count);
    }
    if (model_.shape.has_final_norm) normalize("encoder.norm", model_.encoder_norm, x_, x_, 0, count);
    record_rows("memory", x_, 0, count, model_.shape.d_model);
    for (size_t i = 0; i < model_.decoder.size(); ++i) multiply(model_.decoder[i].cross_memory, x_, caches_[i].memory, 0, count, 0);
}

void Tracer::decode(const std::vector<int32_t>& target, long first, long end) {
    const long num_source = static_cast<long>(source_.size());
    embed("target", DECODER, target, model_.target_embedding, model_.target_positions, first, end);
    for (size_t i = 0; i < model_.decoder.size(); ++i) {
        const DecoderLayer& layer = model_.decoder[i];
        const int index = static_cast<int>(i);
        attention_sublayer({DECODER, SELF_ATTENTION, index}, layer.self_input, layer.self_output, layer.self_norm, caches_[i].self, end, first, end);
        attention_sublayer({DECODER, CROSS_ATTENTION, index}, layer.cross_query, layer.cross_output, layer.cross_norm, caches_[i].memory, num_source, first, end);
        feed_forward_sublayer({DECODER, FEED_FORWARD, index}, layer.feed_forward, first, end);
        const std::string name = "decoder.layers." + std::to_string(i) + ".logits"; // what this layer alone would predict
        if (is_wanted(name)) {
            const Matrix* stream = &x_;
            if (model_.shape.has_final_norm) {
                for (long row = first; row < end; ++row) kernels_.normalize(x_.row(row), model_.shape.d_model, model_.decoder_norm, normed_.row(row), nullptr);
                stream = &normed_;
            }
            logits(name, "", *stream, first, end);
        }
    }
    if (model_.shape.has_final_norm) normalize("decoder.norm", model_.decoder_norm, x_, x_, first, end);
    record_rows("decoder.output", x_, first, end, model_.shape.d_model);
    if (is_wanted("logits") || is_wanted("probabilities")) logits("logits", "probabilities", x_, first, end);
}

// The output layer's rows start at row 0 of `output_logits_`.
void Tracer::logits(const std::string& name, const std::string& probabilities, const Matrix& from, long first, long end) {
    const int vocab_size = model_.shape.target_vocab_size;
    output_logits_.reserve(end - first, vocab_size);
    multiply(model_.output, from, output_logits_, first, end, 0);
    record_rows(name, output_logits_, 0, end - first, vocab_size);
    if (probabilities.empty() || !is_wanted(probabilities)) return;
    for_each_row(pool_, end - first, [&](long row, int) { kernels_.attention_softmax(output_logits_.row(row), 1, output_logits_.stride, vocab_size); });
    record_rows(probabilities, output_logits_, 0, end - first, vocab_size);
}

// Append the most probable tokens up to the end token or `max_length_` tokens, with the constraints of greedy search.
void Tracer::extend_greedily(std::vector<int32_t>& target) {
    Utf8Automaton utf8;
    utf8.set(settings_.byte_ids, model_.shape.target_vocab_size, settings_.forbidden, settings_.num_forbidden);
    int state = Utf8Automaton::COMPLETE;
    for (size_t i = 1; i < target.size(); ++i) state = utf8.next(state, target[i]);
    long first = 0;
    for (int step = static_cast<int>(target.size()) - 1; step < max_length_; ++step) {
        const long end = step + 1;
        decode(target, first, end);
        logits("", "", x_, end - 1, end);
        first = end;
        float* row = output_logits_.row(0);
        TokenConstraint constraint = {0, settings_.eos_id, &utf8.forbidden(), utf8.only(state), {}, {}};
        if (!constraint.only) utf8.ban_unfitting(static_cast<int>(max_length_) - step - 1, constraint.banned);
        constraint.apply(row, 0, model_.shape.target_vocab_size);
        Candidate best = {NEGATIVE_INFINITY, -1};
        kernels_.choose(row, model_.shape.target_vocab_size, 0, &best, 1);
        if (best.token < 0) fail("the model's logits are not numbers (NaN): its weights are damaged");
        if (best.token == settings_.eos_id) return;
        target.push_back(best.token);
        state = utf8.next(state, best.token);
    }
}

} // namespace heedful
