#include "layer_ops.h"

#include <algorithm>
#include <cstring>

namespace heedful {

void multiply(Pool& pool, const Kernels& kernels, const Linear& linear, const Rows& rows, long num_rows, float* to, long stride,
              int activation) {
    constexpr long ROWS = 132; // as many of them fit into the second cache
    const long row_blocks = (num_rows + ROWS - 1) / ROWS;
    const long wanted = std::max(1L, 8L * pool.size() / row_blocks);
    const long tiles = std::max(1L, std::min<long>(8, linear.num_tiles / wanted));
    const long column_blocks = (linear.num_tiles + tiles - 1) / tiles;
    pool.each(row_blocks * column_blocks, [&](long unit, int) {
        const long row = unit / column_blocks * ROWS, tile = unit % column_blocks * tiles;
        const Block block = {row, std::min(row + ROWS, num_rows), static_cast<int>(tile),
                             static_cast<int>(std::min<long>(tile + tiles, linear.num_tiles))};
        kernels.multiply(linear, rows, block, to + row * stride + tile * TILE, stride, activation);
    });
}

void Stack::open(long num_rows) {
    const Shape& shape = model_.shape;
    const long inner = model_.inner();
    num_rows_ = num_rows;
    width_ = padded(shape.d_model, TILE) + 16;
    // Rows a power of two apart would share few places of the cache.
    narrow_stride_ = padded(std::max<long>(shape.d_model, inner), TILE) + 16;
    wide_stride_ = padded(std::max<long>(3 * inner, model_.feed_forward_inputs()), TILE) + 16;
    const long widest = padded(std::max({static_cast<long>(shape.d_model), inner, static_cast<long>(shape.d_ff)}), TILE);
    x_ = x_room_.room(num_rows * width_);
    wide_ = wide_room_.room(num_rows * wide_stride_);
    narrow_ = narrow_room_.room(num_rows * narrow_stride_);
    values_ = value_room_.room(num_rows * widest);
    rows_.values = values_;
    rows_.value_stride = widest;
    rows_.byte_stride = padded(widest, 64) + 64;
    rows_.bytes = byte_room_.room(padded(num_rows, MOST_ROWS) * rows_.byte_stride);
    rows_.scales = scale_room_.room(num_rows);
    rows_.zeros = zero_room_.room(num_rows);
    chosen_.places = place_room_.room(widest + 4 + Chosen::AHEAD);
    chosen_.stride = widest + 4 + Chosen::AHEAD;
    chosen_.bytes = chosen_room_.room(MOST_CHOOSING * chosen_.stride);
}

void Stack::start(long row, const float* table, const float* positions, int32_t token, long position) {
    const long width = model_.shape.d_model;
    kernels_.embed(table + token * width, model_.shape.embedding_scale, positions ? positions + position * width : nullptr,
                   model_.shape.d_model, x(row));
}

void Stack::offer(long row, const float* values, int count) {
    if (model_.shape.int8)
        kernels_.quantise(values, count, static_cast<int>(padded(count, STEP)), rows_.bytes + row * rows_.byte_stride,
                          rows_.scales + row, rows_.zeros + row);
    else if (values != values_ + row * rows_.value_stride)
        std::memcpy(values_ + row * rows_.value_stride, values, count * sizeof(float));
}

void Stack::offer_stream(long row, const Norm* before) {
    float* values = x(row);
    if (before) {
        values = values_ + row * rows_.value_stride;
        kernels_.normalise(x(row), model_.shape.d_model, *before, values);
    }
    offer(row, values, model_.shape.d_model);
}

void Stack::join(long row, const Norm& after) {
    kernels_.add(x(row), narrow(row), model_.shape.d_model);
    if (!model_.shape.norm_before) kernels_.normalise(x(row), model_.shape.d_model, after, x(row));
}

bool Stack::choose_inputs(const Linear& linear) {
    if (num_rows_ > MOST_CHOOSING || !linear.by_input) return false;
    chosen_.rows = static_cast<int>(num_rows_);
    kernels_.choose_inputs(rows_.bytes, rows_.byte_stride, linear.padded_inputs, chosen_);
    return chosen_.count <= linear.padded_inputs / 2; // scattered weights take longer to read
}

void Stack::multiply_chosen(const Linear& linear, float* to, long stride) {
    const int together = std::clamp(linear.num_spans / pool_.size(), 1, MOST_SPANS);
    pool_.each((linear.num_spans + together - 1) / together, [&](long unit, int) {
        const int first = static_cast<int>(unit) * together, end = std::min(first + together, linear.num_spans);
        kernels_.multiply_chosen(linear, rows_, chosen_, first, end, to, stride);
    });
}

void Stack::feed_forward(const FeedForward& layer, const Norm* next) {
    const Shape& shape = model_.shape;
    const bool gated = shape.activation == SWIGLU;
    multiply(layer.input, wide_, wide_stride_, gated ? NO_ACTIVATION : shape.activation);
    each_row([&](long row, int) {
        if (gated) kernels_.gate(wide(row), wide(row) + shape.d_ff, shape.d_ff, wide(row));
        offer(row, wide(row), shape.d_ff);
    });
    if (choose_inputs(layer.output)) multiply_chosen(layer.output, narrow_, narrow_stride_);
    else multiply(layer.output, narrow_, narrow_stride_);
    each_row([&](long row, int) {
        join(row, layer.norm);
        offer_stream(row, next);
    });
}

} // namespace heedful
