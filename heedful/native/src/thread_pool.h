// A work-stealing thread pool. Results do not depend on which thread computes a unit.
//
// Each thread has a share of the units and steals from other threads when its share is done. The calling thread works too,
// and waits only for units that have been started, so a sleeping or preempted helper does not block it. Helpers spin
// briefly before they sleep.
#pragma once

#if defined(__wasm_atomics__)

#include <atomic>
#include <cstdint>

namespace heedful {

// WebAssembly with threads: workers of the page call `help`. The caller works too, and waits only for units that a helper has
// taken, so helpers may come late. A unit must not fail in a helper; if it does, the pool cannot be used any more.
class ThreadPool {
  public:
    explicit ThreadPool(int num_threads) : size_(num_threads) {}
    int size() const { return size_; }

    template <class Work> void each(long count, Work&& work) {
        if (count <= 1 || size_ == 1) {
            for (long unit = 0; unit < count; ++unit) work(unit, 0);
            return;
        }
        auto call = [](void* with, long unit, int thread) { (*static_cast<Work*>(with))(unit, thread); };
        for (long first = 0; first < count; first += MAX_UNITS)
            run(first, count - first < MAX_UNITS ? count - first : MAX_UNITS, call, const_cast<void*>(static_cast<const void*>(&work)));
    }
    [[noreturn]] void help(int thread);
    void set_failed() { has_failed_.store(true); }

  private:
    using Call = void (*)(void*, long unit, int thread);
    static constexpr long MAX_UNITS = 60000;
    static constexpr uint64_t LOW = 0xFFFF;
    // The job number in the upper half, then the next unit and the number of units: one exchange takes a unit of this job.
    static bool is_open(uint64_t ticket) { return (ticket >> 16 & LOW) < (ticket & LOW); }
    void run(long first, long count, Call call, void* with);
    bool take(int thread);

    const int size_;
    Call call_ = nullptr;
    void* with_ = nullptr;
    long first_ = 0;
    uint64_t job_ = 0;
    alignas(64) std::atomic<uint64_t> ticket_{0};
    alignas(64) std::atomic<int32_t> done_{0};
    alignas(64) std::atomic<int32_t> epoch_{0}; // changes with every job; helpers wait for that
    std::atomic<int32_t> sleepers_{0};
    std::atomic<bool> has_failed_{false};
};

struct Mutex {};
struct Lock {
    explicit Lock(Mutex&) {}
    ~Lock() {}
};

} // namespace heedful

#elif defined(__wasm__)

namespace heedful {

// WebAssembly without threads: the caller does all the work.
class ThreadPool {
  public:
    explicit ThreadPool(int) {}
    int size() const { return 1; }
    template <class Work> void each(long count, Work&& work) {
        for (long unit = 0; unit < count; ++unit) work(unit, 0);
    }
};

struct Mutex {};
struct Lock {
    explicit Lock(Mutex&) {}
    ~Lock() {}
};

} // namespace heedful

#else

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace heedful {

using Mutex = std::mutex;
using Lock = std::lock_guard<std::mutex>;

class ThreadPool {
  public:
    explicit ThreadPool(int num_threads);
    ~ThreadPool();
    int size() const { return static_cast<int>(helpers_.size()) + 1; }

    // work(unit, thread) for each unit; returns when all are done. `work` must not throw.
    template <class Work> void each(long count, Work&& work) {
        if (count <= 1 || helpers_.empty()) {
            for (long unit = 0; unit < count; ++unit) work(unit, 0);
            return;
        }
        auto call = [](void* with, long unit, int thread) { (*static_cast<Work*>(with))(unit, thread); };
        for (long first = 0; first < count; first += MAX_UNITS)
            run(first, count - first < MAX_UNITS ? count - first : MAX_UNITS, call, const_cast<void*>(static_cast<const void*>(&work)));
    }

  private:
    using Call = void (*)(void*, long unit, int thread);
    static constexpr long MAX_UNITS = 60000;
    static constexpr uint64_t LOW = 0xFFFF;

    // The job number in the upper half, then the next unit and the end of the share: one compare-and-swap takes a unit of
    // this job.
    struct alignas(64) Share {
        std::atomic<uint64_t> ticket{0};
    };
    static bool is_open(uint64_t ticket) { return (ticket >> 16 & LOW) < (ticket & LOW); }

    void run(long first, long count, Call call, void* with);
    void help(int thread, int size);
    void stop();
    void work(int thread, int size);
    bool take(Share& share, int thread);

    std::unique_ptr<Share[]> shares_;
    alignas(64) std::atomic<long> done_{0};
    Call call_ = nullptr;
    void* with_ = nullptr;
    long first_ = 0;
    uint64_t job_ = 0;
    alignas(64) std::atomic<int> sleepers_{0};
    std::atomic<bool> stopping_{false};
    std::mutex mutex_;
    std::condition_variable wake_;
    std::vector<std::thread> helpers_;
};

} // namespace heedful

#endif
