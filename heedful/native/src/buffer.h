// A reusable buffer that only grows; growing discards its contents.
#pragma once

#include <cstddef>
#include <cstdlib>

#include "error.h"

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace heedful {

template <class Number> class Buffer {
  public:
    Buffer() = default;
    ~Buffer() { std::free(data_); }
    Buffer(const Buffer&) = delete;
    Buffer& operator=(const Buffer&) = delete;

    Number* reserve(size_t count) {
        if (count > count_) {
            std::free(data_);
            data_ = nullptr, count_ = 0;
            const size_t page = 1 << 21, wanted = count * sizeof(Number);
            const size_t unit = wanted >= page ? page : 64;
            const size_t bytes = (wanted + unit - 1) / unit * unit;
            void* memory = std::aligned_alloc(unit, bytes);
            if (!memory) fail_allocation();
#if defined(__linux__)
            if (unit == page) ::madvise(memory, bytes, MADV_HUGEPAGE);
#endif
            data_ = static_cast<Number*>(memory);
            count_ = count;
        }
        return data_;
    }
    Number* data() const { return data_; }

  private:
    Number* data_ = nullptr;
    size_t count_ = 0;
};

} // namespace heedful
