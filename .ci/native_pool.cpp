// Many small jobs, some larger than one portion, some after a pause in which helpers fall asleep; run under
// -fsanitize=thread by native_fuzz.py. Every unit must be done exactly once.
#include <chrono>
#include <cstdio>
#include <thread>
#include <vector>

#include "thread_pool.h"

int main() {
    heedful::ThreadPool pool(4);
    std::vector<long> done;
    for (long job = 0; job < 20000; ++job) {
        const long count = job % 1000 == 0 ? 130000 : 1 + job % 37;
        done.assign(count, 0);
        pool.each(count, [&](long unit, int) { done[unit] += unit + job; });
        for (long unit = 0; unit < count; ++unit)
            if (done[unit] != unit + job) return std::fprintf(stderr, "job %ld: unit %ld was not done once\n", job, unit), 1;
        if (job % 500 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    return 0;
}
