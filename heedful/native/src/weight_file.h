// The weight file. It is read into memory and used only after its checksums and all bounds have been verified; later
// changes of the file have no effect.
//
//   0    magic, version, number of tensors, size of the file, two checksums of everything after byte 64
//   64   fingerprint of the source model
//   96   Shape
//   192  one entry per tensor: name, kind, rows, columns, offset
//   …    the tensors, aligned to 64 bytes
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "buffer.h"
#include "error.h"
#include "thread_pool.h"

namespace heedful {

// The hyperparameters that inference needs.
struct Shape {
    int32_t d_model, d_ff, num_heads, head_dim, num_encoder_layers, num_decoder_layers;
    int32_t source_vocab_size, target_vocab_size, max_length;
    int32_t norm_before, only_scale, has_final_norm; // norm placement, RMSNorm, a norm after each stack
    int32_t rotary, activation, int8, tied_embedding;
    int32_t spare[4];
    float norm_epsilon, attention_scale, embedding_scale, spare_float;
};

enum Kind : uint32_t { FLOAT = 0, INT8 = 1, INT32 = 2 };

struct Entry {
    char name[64];
    uint32_t kind, rows, columns, spare;
    uint64_t offset, bytes;
};

class WeightFile {
  public:
    WeightFile(const std::string& path, ThreadPool& pool);
    // A file that is already in memory; the contents are copied.
    WeightFile(const unsigned char* contents, size_t size);
    WeightFile(const WeightFile&) = delete;
    WeightFile& operator=(const WeightFile&) = delete;

    const Shape& shape() const { return shape_; }
    bool has(const std::string& name) const { return find(name) != nullptr; }
    // The tensor of this name; fails if its kind or shape differs.
    const void* tensor(const std::string& name, Kind kind, long rows, long columns) const;
    const float* floats(const std::string& name, long rows, long columns) const {
        return static_cast<const float*>(tensor(name, FLOAT, rows, columns));
    }

  private:
    const Entry* find(const std::string& name) const;
    // Padding after the contents, since kernels prefetch past the end.
    static constexpr size_t READ_AHEAD = 16384;

    struct Sums;
    Sums read(int file, ThreadPool& pool);
    unsigned char* reserve_contents(size_t size);
    void check(const Sums& sums);
    [[noreturn]] void damaged(const std::string& how) const;

    std::string path_;
    Buffer<unsigned char> contents_;
    const unsigned char* bytes_ = nullptr;
    size_t size_ = 0;
    uint32_t num_tensors_ = 0;
    Shape shape_{};
};

} // namespace heedful
