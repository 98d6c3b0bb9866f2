#include "decoder.h"

#include <algorithm>

namespace heedful {

void Decoder::begin(const Memory& memory, long num_slots, long capacity) {
    memory_ = &memory;
    num_slots_ = num_slots, capacity_ = capacity;
    cache_.reserve(static_cast<long>(model_.decoder.size()) * num_slots * capacity * entry());
    long longest = capacity;
    for (const long* start = memory.starts; *start < memory.num_rows; ++start) longest = std::max(longest, start[1] - start[0]);
    scores_stride_ = padded(longest, 16) + 16;
    scores_.reserve(pool_.size() * MAX_QUERIES * model_.shape.num_heads * scores_stride_);
    offsets_.reserve(longest);
    for (long t = 0; t < longest; ++t) offsets_.data()[t] = t * memory.stride;
}

void Decoder::step(const std::vector<DecoderInput>& inputs) {
    reserve_rows(static_cast<long>(inputs.size()));
    groups_.clear();
    for (long first = 0, end = 0; first < num_rows_; first = end) { // the hypotheses of a sentence share its memory
        while (end < num_rows_ && inputs[end].sentence == inputs[first].sentence) ++end;
        if (!inputs[first].weights) group(first, end);
        else for (long row = first; row < end; ++row) groups_.push_back({row, 1}); // only a group of one can keep its weights
    }
    const size_t last = model_.decoder.size() - 1;
    const Norm* final_norm = model_.shape.has_final_norm ? &model_.decoder_norm : nullptr;
    for_each_row([&](long row, int) {
        embed(row, model_.target_embedding, model_.target_positions, inputs[row].token, inputs[row].position);
        set_input_from_stream(row, if_pre_norm(model_.decoder[0].self_norm));
    });
    for (size_t i = 0; i <= last; ++i) {
        const DecoderLayer& layer = model_.decoder[i];
        attend_self(layer, static_cast<long>(i), inputs);
        attend_memory(layer, static_cast<long>(i), inputs);
        feed_forward(layer.feed_forward, i == last ? final_norm : if_pre_norm(model_.decoder[i + 1].self_norm));
    }
}

void Decoder::attend_self(const DecoderLayer& layer, long index, const std::vector<DecoderInput>& inputs) {
    const Shape& shape = model_.shape;
    const int inner = model_.inner();
    const long first = index * num_slots_ * capacity_ * entry();
    multiply(layer.self_input, wide_, wide_stride_);
    for_each_attention_row([&](long row, int thread) {
        const DecoderInput& input = inputs[row];
        if (model_.turns)
            kernels_.rotate(wide(row), 2 * shape.num_heads, shape.head_dim, model_.turns + static_cast<long>(input.position) * shape.head_dim);
        cache_.put(first + input.offsets[input.position], wide(row) + inner, 2 * inner);
        const AttentionArguments arguments = {cache_.at(first), cache_.is_bfloat16(), input.offsets,     input.position + 1,     inner,
                                   shape.num_heads, shape.head_dim, shape.attention_scale, scores_stride_};
        kernels_.attend(wide(row), 0, 1, arguments, scores(thread), narrow(row), 0);
        set_input(row, narrow(row), inner);
    });
    multiply(layer.self_output, narrow_, narrow_stride_);
    for_each_row([&](long row, int) {
        add_residual(row, layer.self_norm);
        set_input_from_stream(row, if_pre_norm(layer.cross_norm));
    });
}

void Decoder::attend_memory(const DecoderLayer& layer, long index, const std::vector<DecoderInput>& inputs) {
    const Shape& shape = model_.shape;
    const int inner = model_.inner();
    multiply(layer.cross_query, wide_, wide_stride_);
    for_each_group([&](Group group, int thread) {
        const long* start = memory_->starts + inputs[group.first].sentence;
        const AttentionArguments arguments = {memory_->cache.at(memory_->offset(index, start[0])), memory_->cache.is_bfloat16(), offsets_.data(),
                                   static_cast<int>(start[1] - start[0]),           inner,
                                   shape.num_heads, shape.head_dim,                 shape.attention_scale, scores_stride_};
        kernels_.attend(wide(group.first), wide_stride_, group.count, arguments, scores(thread), narrow(group.first), narrow_stride_);
        for (long row = group.first; row < group.first + group.count; ++row) set_input(row, narrow(row), inner);
        if (index == alignment_head_.layer && inputs[group.first].weights) copy_attention_weights(inputs[group.first].weights, arguments.count, scores(thread));
    });
    multiply(layer.cross_output, narrow_, narrow_stride_);
    for_each_row([&](long row, int) {
        add_residual(row, layer.cross_norm);
        set_input_from_stream(row, if_pre_norm(layer.feed_forward.norm));
    });
}

// Copy the attention weights of one head, or the mean over the heads. The row must be the only one of its group.
void Decoder::copy_attention_weights(float* to, int count, const float* scores) const {
    const int num_heads = model_.shape.num_heads;
    if (alignment_head_.head >= 0) {
        std::copy(scores + alignment_head_.head * scores_stride_, scores + alignment_head_.head * scores_stride_ + count, to);
        return;
    }
    for (int t = 0; t < count; ++t) {
        float sum = 0.0f;
        for (int head = 0; head < num_heads; ++head) sum += scores[head * scores_stride_ + t];
        to[t] = sum / static_cast<float>(num_heads);
    }
}

} // namespace heedful
