// Threads that share out units of work. Who computes a unit never changes what comes out.
//
// The thread that asks for work also does it, and waits only for units that another has begun: a helper that sleeps or
// was sent off its core holds nobody up. Helpers watch for work for a moment before they sleep.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

namespace heedful {

class Pool {
  public:
    explicit Pool(int num_threads);
    ~Pool();
    int size() const { return static_cast<int>(helpers_.size()) + 1; }

    // work(unit, thread) for each unit; returns when all are done. `work` must not throw.
    template <class Work> void each(long count, Work&& work) {
        if (count <= 1 || helpers_.empty()) {
            for (long unit = 0; unit < count; ++unit) work(unit, 0);
            return;
        }
        auto call = [](void* with, long unit, int thread) { (*static_cast<Work*>(with))(unit, thread); };
        run(count, call, const_cast<void*>(static_cast<const void*>(&work)));
    }

  private:
    using Call = void (*)(void*, long unit, int thread);
    void run(long count, Call call, void* with);
    void help(int thread);
    bool take(int thread);
    bool waiting() const { return (ticket_.load(std::memory_order_acquire) & 0xFFFFFFFFu) != 0; }

    // Number of the job in the upper half, units nobody has taken in the lower: one exchange takes a unit of this job.
    alignas(64) std::atomic<uint64_t> ticket_{0};
    alignas(64) std::atomic<long> done_{0};
    Call call_ = nullptr;
    void* with_ = nullptr;
    long count_ = 0;
    alignas(64) std::atomic<int> sleepers_{0};
    std::atomic<bool> stopping_{false};
    std::mutex mutex_;
    std::condition_variable wake_;
    std::vector<std::thread> helpers_;
};

} // namespace heedful
