#include "encoder.h"

#include <algorithm>

namespace heedful {

void Encoder::read(const int32_t* tokens, const long* starts, int num_sentences, Memory& memory) {
    reserve_rows(starts[num_sentences]);
    int* sentence_of = sentences_.reserve(num_rows_);
    int longest = 0;
    groups_.clear();
    for (int s = 0; s < num_sentences; ++s) {
        longest = std::max(longest, static_cast<int>(starts[s + 1] - starts[s]));
        for (long row = starts[s]; row < starts[s + 1]; ++row) sentence_of[row] = s;
        group(starts[s], starts[s + 1]);
    }
    const size_t last = model_.encoder.size() - 1;
    const Norm* final_norm = model_.shape.has_final_norm ? &model_.encoder_norm : nullptr;
    for_each_row([&](long row, int) {
        embed(row, model_.source_embedding, model_.source_positions, tokens[row], row - starts[sentence_of[row]]);
        set_input_from_stream(row, if_pre_norm(model_.encoder[0].self_norm));
    });
    for (size_t i = 0; i <= last; ++i) {
        const EncoderLayer& layer = model_.encoder[i];
        attend(layer, starts, sentence_of, longest);
        feed_forward(layer.feed_forward, i == last ? final_norm : if_pre_norm(model_.encoder[i + 1].self_norm));
    }
    memory.num_rows = num_rows_;
    memory.stride = padded(2 * model_.inner(), 16) + 32; // a stride that is a power of two would cause cache conflicts
    memory.starts = starts;
    memory.cache.reserve(model_.decoder.size() * num_rows_ * memory.stride);
    for (size_t i = 0; i < model_.decoder.size(); ++i) {
        multiply(model_.decoder[i].cross_memory, wide_, wide_stride_);
        for_each_row([&](long row, int) { memory.cache.put(memory.offset(static_cast<long>(i), row), wide(row), 2 * model_.inner()); });
    }
}

void Encoder::attend(const EncoderLayer& layer, const long* starts, const int* sentence_of, int longest) {
    const Shape& shape = model_.shape;
    const int inner = model_.inner();
    const long score_stride = padded(longest, 16) + 16;
    const long scores_size = MAX_QUERIES * shape.num_heads * score_stride;
    float* scores = scores_.reserve(pool_.size() * scores_size);
    long* offsets = offsets_.reserve(longest);
    for (long t = 0; t < longest; ++t) offsets[t] = t * wide_stride_;
    multiply(layer.self_input, wide_, wide_stride_);
    if (model_.turns)
        for_each_row([&](long row, int) { // queries and keys are contiguous
            const float* turns = model_.turns + (row - starts[sentence_of[row]]) * shape.head_dim;
            kernels_.rotate(wide(row), 2 * shape.num_heads, shape.head_dim, turns);
        });
    for_each_group([&](Group group, int thread) {
        const int s = sentence_of[group.first];
        const AttentionArguments arguments = {wide(starts[s]) + inner, false, offsets,          static_cast<int>(starts[s + 1] - starts[s]), inner,
                                   shape.num_heads,         shape.head_dim, shape.attention_scale, score_stride};
        kernels_.attend(wide(group.first), wide_stride_, group.count, arguments, scores + thread * scores_size, narrow(group.first), narrow_stride_);
        for (long row = group.first; row < group.first + group.count; ++row) set_input(row, narrow(row), inner);
    });
    multiply(layer.self_output, narrow_, narrow_stride_);
    for_each_row([&](long row, int) {
        add_residual(row, layer.self_norm);
        set_input_from_stream(row, if_pre_norm(layer.feed_forward.norm));
    });
}

} // namespace heedful
