#include "layer_ops.h"

#include <algorithm>
#include <cstring>

namespace heedful {

void multiply(ThreadPool& pool, const Kernels& kernels, const Linear& linear, const Rows& rows, long num_rows, float* to, long stride,
              int activation) {
    constexpr long ROWS = 132; // fits into the L2 cache
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

void LayerOps::reserve_rows(long num_rows) {
    const Shape& shape = model_.shape;
    const long inner = model_.inner();
    num_rows_ = num_rows;
    width_ = padded(shape.d_model, TILE) + 16;
    // A stride that is a power of two would cause cache conflicts.
    narrow_stride_ = padded(std::max<long>(shape.d_model, inner), TILE) + 16;
    wide_stride_ = padded(std::max<long>(3 * inner, model_.feed_forward_inputs()), TILE) + 16;
    const long widest = padded(std::max({static_cast<long>(shape.d_model), inner, static_cast<long>(shape.d_ff)}), TILE);
    x_ = x_buffer_.reserve(num_rows * width_);
    wide_ = wide_buffer_.reserve(num_rows * wide_stride_);
    narrow_ = narrow_buffer_.reserve(num_rows * narrow_stride_);
    values_ = value_buffer_.reserve(num_rows * widest);
    rows_.values = values_;
    rows_.value_stride = widest;
    rows_.byte_stride = padded(widest, 64) + 64;
    rows_.bytes = byte_buffer_.reserve(padded(num_rows, MAX_ROWS) * rows_.byte_stride);
    rows_.scales = scale_buffer_.reserve(num_rows);
    rows_.zeros = zero_buffer_.reserve(num_rows);
    nonzero_.indices = index_buffer_.reserve(widest + 4 + NonzeroInputs::AHEAD);
    nonzero_.stride = widest + 4 + NonzeroInputs::AHEAD;
    nonzero_.bytes = nonzero_buffer_.reserve(MAX_SPARSE_ROWS * nonzero_.stride);
}

void LayerOps::embed(long row, const Embedding& table, const float* positions, int32_t token, long position) {
    const long width = model_.shape.d_model;
    table.read(token, x(row));
    kernels_.embed(x(row), model_.shape.embedding_scale, positions ? positions + position * width : nullptr, model_.shape.d_model, x(row));
}

void LayerOps::set_input(long row, const float* values, int count) {
    if (model_.shape.int8)
        kernels_.quantize(values, count, static_cast<int>(padded(count, STEP)), rows_.bytes + row * rows_.byte_stride,
                          rows_.scales + row, rows_.zeros + row);
    else if (values != values_ + row * rows_.value_stride)
        std::memcpy(values_ + row * rows_.value_stride, values, count * sizeof(float));
}

void LayerOps::set_input_from_stream(long row, const Norm* before) {
    float* values = x(row);
    if (before) {
        values = values_ + row * rows_.value_stride;
        kernels_.normalize(x(row), model_.shape.d_model, *before, values, nullptr);
    }
    set_input(row, values, model_.shape.d_model);
}

void LayerOps::add_residual(long row, const Norm& after) {
    kernels_.add(x(row), narrow(row), model_.shape.d_model);
    if (!model_.shape.norm_before) kernels_.normalize(x(row), model_.shape.d_model, after, x(row), nullptr);
}

bool LayerOps::find_nonzero_inputs(const Linear& linear) {
    if (num_rows_ > MAX_SPARSE_ROWS || !linear.input_major) return false;
    nonzero_.rows = static_cast<int>(num_rows_);
    kernels_.find_nonzero_inputs(rows_.bytes, rows_.byte_stride, linear.padded_inputs, nonzero_);
    return nonzero_.count <= linear.padded_inputs / 2; // scattered reads are slower
}

void LayerOps::multiply_nonzero(const Linear& linear, float* to, long stride) {
    const int together = std::clamp(linear.num_spans / pool_.size(), 1, MAX_SPANS);
    pool_.each((linear.num_spans + together - 1) / together, [&](long unit, int) {
        const int first = static_cast<int>(unit) * together, end = std::min(first + together, linear.num_spans);
        kernels_.multiply_nonzero(linear, rows_, nonzero_, first, end, to, stride);
    });
}

void LayerOps::feed_forward(const FeedForward& layer, const Norm* next) {
    const Shape& shape = model_.shape;
    const bool gated = shape.activation == SWIGLU;
    multiply(layer.input, wide_, wide_stride_, gated ? NO_ACTIVATION : shape.activation);
    for_each_row([&](long row, int) {
        if (gated) kernels_.gate(wide(row), wide(row) + shape.d_ff, shape.d_ff, wide(row));
        set_input(row, wide(row), shape.d_ff);
    });
    if (find_nonzero_inputs(layer.output)) multiply_nonzero(layer.output, narrow_, narrow_stride_);
    else multiply(layer.output, narrow_, narrow_stride_);
    for_each_row([&](long row, int) {
        add_residual(row, layer.norm);
        set_input_from_stream(row, next);
    });
}

} // namespace heedful
