#include "thread_pool.h"

#if defined(__wasm_atomics__)

#include "error.h"

namespace heedful {
namespace {

constexpr int HELPER_SPINS = 5000, LEADER_SPINS = 5000;
constexpr int64_t LEADER_PAUSE = 50000, FOREVER = -1; // nanoseconds

void wait_while(std::atomic<int32_t>& number, int32_t value, int64_t nanoseconds) {
    __builtin_wasm_memory_atomic_wait32(reinterpret_cast<int*>(&number), value, nanoseconds);
}

} // namespace

void ThreadPool::run(long first, long count, Call call, void* with) {
    call_ = call, with_ = with, first_ = first;
    done_.store(0);
    ++job_;
    ticket_.store(job_ << 32 | static_cast<uint64_t>(count));
    epoch_.fetch_add(1);
    if (sleepers_.load() > 0) __builtin_wasm_memory_atomic_notify(reinterpret_cast<int*>(&epoch_), size_);
    while (take(0)) {}
    for (int spins = 0;; ++spins) {
        const int32_t done = done_.load();
        if (done == count) return;
        if (has_failed_.load()) fail(NO_MEMORY);
        if (spins >= LEADER_SPINS) wait_while(done_, done, LEADER_PAUSE); // the helper may need this core
    }
}

// Take a unit and process it. After the exchange the job cannot end before this unit is done, so its fields remain valid.
bool ThreadPool::take(int thread) {
    uint64_t ticket = ticket_.load();
    do {
        if (!is_open(ticket)) return false;
    } while (!ticket_.compare_exchange_weak(ticket, ticket + (1u << 16)));
    call_(with_, first_ + static_cast<long>(ticket >> 16 & LOW), thread);
    done_.fetch_add(1);
    return true;
}

void ThreadPool::help(int thread) {
    while (true) {
        const int32_t epoch = epoch_.load();
        for (int spins = 0; spins < HELPER_SPINS;) spins = take(thread) ? 0 : spins + 1;
        sleepers_.fetch_add(1);
        wait_while(epoch_, epoch, FOREVER); // does not wait if there was a job since
        sleepers_.fetch_sub(1);
    }
}

} // namespace heedful

#elif !defined(__wasm__)

#include <stdexcept>
#include <string>
#include <system_error>

namespace heedful {
namespace {

// A pause takes 15 to 50 ns. After these limits a waiting thread yields its core, which the thread it waits for may need.
constexpr int LEADER_PAUSES = 50, HELPER_PAUSES = 200, HELPER_YIELDS = 300;

inline void pause() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

} // namespace

ThreadPool::ThreadPool(int num_threads) : shares_(new Share[num_threads]) {
    helpers_.reserve(num_threads - 1);
    try {
        for (int thread = 1; thread < num_threads; ++thread) helpers_.emplace_back([this, thread, num_threads] { help(thread, num_threads); });
    } catch (const std::system_error& error) {
        const std::string started = std::to_string(helpers_.size() + 1);
        stop();
        throw std::runtime_error("only " + started + " of " + std::to_string(num_threads) + " threads could be started (" + error.what() +
                                 "); use fewer threads, or allow this process more threads or memory");
    }
}

ThreadPool::~ThreadPool() { stop(); }

void ThreadPool::stop() {
    {
        std::lock_guard<std::mutex> lock(mutex_);
        stopping_ = true;
    }
    wake_.notify_all();
    for (std::thread& helper : helpers_) helper.join();
}

void ThreadPool::run(long first, long count, Call call, void* with) {
    call_ = call, with_ = with, first_ = first;
    done_.store(0, std::memory_order_relaxed);
    ++job_;
    const long size = this->size();
    for (long thread = 0; thread < size; ++thread) {
        const uint64_t begin = count * thread / size, end = count * (thread + 1) / size;
        shares_[thread].ticket.store(job_ << 32 | begin << 16 | end, std::memory_order_seq_cst);
    }
    if (sleepers_.load(std::memory_order_seq_cst) > 0) {
        std::lock_guard<std::mutex> lock(mutex_);
        wake_.notify_all();
    }
    work(0, size);
    for (int spins = 0; done_.load(std::memory_order_acquire) != count; ++spins) {
        if (spins < LEADER_PAUSES) pause();
        else std::this_thread::yield();
    }
}

// Process units until none are left, the thread's own share first. Completed units are reported once, at the end.
void ThreadPool::work(int thread, int size) {
    long count = 0;
    for (int i = 0; i < size; ++i)
        while (take(shares_[(thread + i) % size], thread)) ++count;
    if (count) done_.fetch_add(count, std::memory_order_release);
}

// Take a unit and process it. After the exchange the job cannot end before this unit is done, so its fields remain valid.
bool ThreadPool::take(Share& share, int thread) {
    uint64_t ticket = share.ticket.load(std::memory_order_acquire);
    do {
        if (!is_open(ticket)) return false;
    } while (!share.ticket.compare_exchange_weak(ticket, ticket + (1u << 16), std::memory_order_acq_rel, std::memory_order_acquire));
    call_(with_, first_ + static_cast<long>(ticket >> 16 & LOW), thread);
    return true;
}

void ThreadPool::help(int thread, int size) {
    const std::atomic<uint64_t>& ticket = shares_[thread].ticket;
    while (true) {
        int spins = 0;
        while (!is_open(ticket.load(std::memory_order_acquire)) && spins < HELPER_PAUSES + HELPER_YIELDS &&
               !stopping_.load(std::memory_order_relaxed)) {
            if (++spins < HELPER_PAUSES) pause();
            else std::this_thread::yield();
        }
        if (is_open(ticket.load(std::memory_order_acquire))) {
            work(thread, size);
            continue;
        }
        std::unique_lock<std::mutex> lock(mutex_);
        sleepers_.fetch_add(1, std::memory_order_seq_cst);
        wake_.wait(lock, [&] { return stopping_ || is_open(ticket.load(std::memory_order_seq_cst)); });
        sleepers_.fetch_sub(1, std::memory_order_seq_cst);
        if (stopping_) return;
    }
}

} // namespace heedful

#endif
