// Operations shared by encoder and decoder: linear layers, norms and residual sums over rows of the residual stream.
#pragma once

#include <algorithm>
#include <vector>

#include "buffer.h"
#include "model.h"
#include "thread_pool.h"

namespace heedful {

// work(row, thread) for each row; a few rows are processed by the calling thread alone.
template <class Work> void for_each_row(ThreadPool& pool, long num_rows, Work&& work, long few = 8) {
    if (num_rows < few) {
        for (long row = 0; row < num_rows; ++row) work(row, 0);
    } else {
        const long grain = num_rows < 32 ? 1 : 4;
        pool.each((num_rows + grain - 1) / grain, [&](long unit, int thread) {
            for (long row = unit * grain; row < (unit + 1) * grain && row < num_rows; ++row) work(row, thread);
        });
    }
}

// Apply a linear layer to rows, distributed over the threads.
void multiply(ThreadPool& pool, const Kernels& kernels, const Linear& linear, const Rows& rows, long num_rows, float* to, long stride,
              int activation = NO_ACTIVATION);

class LayerOps {
  public:
    LayerOps(const Model& model, const Kernels& kernels, ThreadPool& pool) : model_(model), kernels_(kernels), pool_(pool) {}

  protected:
    // Allocate buffers for this many rows.
    void reserve_rows(long num_rows);

    template <class Work> void for_each_row(Work&& work) { heedful::for_each_row(pool_, num_rows_, work); }
    // The same with a lower threshold for using the threads.
    template <class Work> void for_each_attention_row(Work&& work) { heedful::for_each_row(pool_, num_rows_, work, 4); }

    // Consecutive rows that attend to the same keys.
    struct Group {
        long first;
        int count;
    };
    // Split the rows [first, end) into groups, small enough for all threads to have work.
    void group(long first, long end) {
        const long most = std::clamp(num_rows_ / (2L * pool_.size()), 1L, static_cast<long>(MAX_QUERIES));
        for (; first < end; first += most) groups_.push_back({first, static_cast<int>(std::min(end - first, most))});
    }
    // work(group, thread) for each group.
    template <class Work> void for_each_group(Work&& work) {
        if (num_rows_ < 4) {
            for (const Group& group : groups_) work(group, 0);
        } else {
            pool_.each(static_cast<long>(groups_.size()), [&](long unit, int thread) { work(groups_[unit], thread); });
        }
    }

    float* x(long row) const { return x_ + row * width_; }
    float* wide(long row) const { return wide_ + row * wide_stride_; }
    float* narrow(long row) const { return narrow_ + row * narrow_stride_; }

    void embed(long row, const Embedding& table, const float* positions, int32_t token, long position);
    // Set a row of the next linear layer's input.
    void set_input(long row, const float* values, int count);
    // Set a row of the next linear layer's input from the residual stream, normalized if `before` is given.
    void set_input_from_stream(long row, const Norm* before);
    // Add a sublayer's output to the residual stream, and apply its norm in post-norm models.
    void add_residual(long row, const Norm& after);
    void multiply(const Linear& linear, float* to, long stride, int activation = NO_ACTIVATION) {
        heedful::multiply(pool_, kernels_, linear, rows_, num_rows_, to, stride, activation);
    }
    // The same for a few rows with mostly zero inputs.
    void multiply_nonzero(const Linear& linear, float* to, long stride);
    // Find the nonzero inputs; returns whether multiply_nonzero is faster.
    bool find_nonzero_inputs(const Linear& linear);
    // The feed-forward sublayer with its residual connection; sets the input of the next layer, normalized by `next`.
    void feed_forward(const FeedForward& layer, const Norm* next);

    const Norm* if_pre_norm(const Norm& norm) const { return model_.shape.norm_before ? &norm : nullptr; }

    const Model& model_;
    const Kernels& kernels_;
    ThreadPool& pool_;
    long num_rows_ = 0, width_ = 0, wide_stride_ = 0, narrow_stride_ = 0;
    float *x_ = nullptr, *wide_ = nullptr, *narrow_ = nullptr;
    std::vector<Group> groups_;
    Rows rows_; // the input of the next linear layer

  private:
    Buffer<float> x_buffer_, wide_buffer_, narrow_buffer_, value_buffer_, scale_buffer_;
    Buffer<uint8_t> byte_buffer_, nonzero_buffer_;
    Buffer<int32_t> zero_buffer_, index_buffer_;
    float* values_ = nullptr;
    NonzeroInputs nonzero_;
};

} // namespace heedful
