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

// The product of rows by a linear layer, shared out to the threads.
void multiply(ThreadPool& pool, const Kernels& kernels, const Linear& linear, const Rows& rows, long num_rows, float* to, long stride,
              int activation = NO_ACTIVATION);

class LayerOps {
  public:
    LayerOps(const Model& model, const Kernels& kernels, ThreadPool& pool) : model_(model), kernels_(kernels), pool_(pool) {}

  protected:
    // Make room for this many rows.
    void open(long num_rows);

    template <class Work> void for_each_row(Work&& work) { heedful::for_each_row(pool_, num_rows_, work); }
    // The same for work that is worth it sooner.
    template <class Work> void for_each_attention_row(Work&& work) { heedful::for_each_row(pool_, num_rows_, work, 4); }

    // Rows side by side that attend to the same.
    struct Group {
        long first;
        int count;
    };
    // Add the rows from first to before end, a few at a time, but so that every thread has some.
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

    void start(long row, const float* table, const float* positions, int32_t token, long position);
    // Hand a row of numbers to the next linear layer.
    void offer(long row, const float* values, int count);
    // Hand the row of the residual stream to the next linear layer, through a norm where there is one.
    void set_input_from_stream(long row, const Norm* before);
    // Add a sublayer's output to the stream, with the norm that follows it where there is one.
    void join(long row, const Norm& after);
    void multiply(const Linear& linear, float* to, long stride, int activation = NO_ACTIVATION) {
        heedful::multiply(pool_, kernels_, linear, rows_, num_rows_, to, stride, activation);
    }
    // The same for a few rows, most of whose bytes are zero.
    void multiply_nonzero(const Linear& linear, float* to, long stride);
    // Find the inputs that are not zero; whether it is worth while to read the weights of these alone.
    bool find_nonzero_inputs(const Linear& linear);
    // The feed-forward sublayer over rows that were offered; its output is joined and offered on through `next`.
    void feed_forward(const FeedForward& layer, const Norm* next);

    const Norm* if_pre_norm(const Norm& norm) const { return model_.shape.norm_before ? &norm : nullptr; }

    const Model& model_;
    const Kernels& kernels_;
    ThreadPool& pool_;
    long num_rows_ = 0, width_ = 0, wide_stride_ = 0, narrow_stride_ = 0;
    float *x_ = nullptr, *wide_ = nullptr, *narrow_ = nullptr;
    std::vector<Group> groups_;
    Rows rows_; // what the next linear layer is given

  private:
    Buffer<float> x_buffer_, wide_buffer_, narrow_buffer_, value_buffer_, scale_buffer_;
    Buffer<uint8_t> byte_buffer_, nonzero_buffer_;
    Buffer<int32_t> zero_buffer_, index_buffer_;
    float* values_ = nullptr;
    NonzeroInputs nonzero_;
};

} // namespace heedful
