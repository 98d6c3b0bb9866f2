#include "pool.h"

namespace heedful {
namespace {

// A pause is 15 to 50 ns. Past these, waiting gives the core to whoever needs it, first of all to the one waited for.
constexpr int LEADER_PAUSES = 50, HELPER_PAUSES = 200, HELPER_YIELDS = 300;

inline void pause() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

} // namespace

Pool::Pool(int num_threads) {
    for (int thread = 1; thread < num_threads; ++thread) helpers_.emplace_back([this, thread] { help(thread); });
}

Pool::~Pool() {
    {
        std::lock_guard<std::mutex> lock(mutex_);
        stopping_ = true;
    }
    wake_.notify_all();
    for (std::thread& helper : helpers_) helper.join();
}

void Pool::run(long count, Call call, void* with) {
    call_ = call, with_ = with, count_ = count;
    done_.store(0, std::memory_order_relaxed);
    const uint64_t job = (ticket_.load(std::memory_order_relaxed) >> 32) + 1;
    ticket_.store(job << 32 | static_cast<uint64_t>(count), std::memory_order_seq_cst);
    if (sleepers_.load(std::memory_order_seq_cst) > 0) {
        std::lock_guard<std::mutex> lock(mutex_);
        wake_.notify_all();
    }
    while (take(0)) {}
    for (int spins = 0; done_.load(std::memory_order_acquire) != count; ++spins) {
        if (spins < LEADER_PAUSES) pause();
        else std::this_thread::yield();
    }
}

// Take a unit and do it. After the exchange the job cannot end before this unit is done, so its fields stand.
bool Pool::take(int thread) {
    uint64_t ticket = ticket_.load(std::memory_order_acquire);
    do {
        if ((ticket & 0xFFFFFFFFu) == 0) return false;
    } while (!ticket_.compare_exchange_weak(ticket, ticket - 1, std::memory_order_acq_rel, std::memory_order_acquire));
    const long unit = count_ - static_cast<long>(ticket & 0xFFFFFFFFu);
    call_(with_, unit, thread);
    done_.fetch_add(1, std::memory_order_release);
    return true;
}

void Pool::help(int thread) {
    while (true) {
        int spins = 0;
        while (!waiting() && spins < HELPER_PAUSES + HELPER_YIELDS && !stopping_.load(std::memory_order_relaxed)) {
            if (++spins < HELPER_PAUSES) pause();
            else std::this_thread::yield();
        }
        if (waiting()) {
            while (take(thread)) {}
            continue;
        }
        std::unique_lock<std::mutex> lock(mutex_);
        sleepers_.fetch_add(1, std::memory_order_seq_cst);
        wake_.wait(lock, [this] { return stopping_ || (ticket_.load(std::memory_order_seq_cst) & 0xFFFFFFFFu) != 0; });
        sleepers_.fetch_sub(1, std::memory_order_seq_cst);
        if (stopping_) return;
    }
}

} // namespace heedful
