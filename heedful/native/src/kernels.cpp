// Which kernels this processor can run.
#include "kernels.h"

#include <cstring>

#if defined(__x86_64__)
#include <cpuid.h>
#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif
#endif

namespace heedful {
namespace {

#if defined(__x86_64__)
struct Processor {
    bool avx2 = false, avx_vnni = false, avx512 = false, amx = false;

    Processor() {
        // __builtin_cpu_supports also checks that the operating system saves the wide registers.
        avx2 = __builtin_cpu_supports("avx2");
        avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                 __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
                 __builtin_cpu_supports("avx512vnni");
        unsigned a = 0, b = 0, c = 0, d = 0;
        avx_vnni = avx2 && __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a >> 4 & 1);
        amx = avx512 && __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d >> 24 & 1) && (d >> 25 & 1) && tiles_allowed();
    }

    // The operating system must save the AMX tiles; on Linux, a process must request permission to use them.
    static bool tiles_allowed() {
#if defined(__linux__) && defined(SYS_arch_prctl)
        constexpr unsigned long TILE_DATA = 18, REQUEST = 0x1023;
        unsigned a = 0, b = 0, c = 0, d = 0;
        if (!__get_cpuid(1, &a, &b, &c, &d) || !(c >> 27 & 1)) return false;
        asm volatile("xgetbv" : "=a"(a), "=d"(d) : "c"(0));
        return (a >> 17 & 3) == 3 && ::syscall(SYS_arch_prctl, REQUEST, TILE_DATA) == 0;
#else
        return false;
#endif
    }
};
#endif

} // namespace

#if defined(__x86_64__)
// Products of few rows are limited by memory. Prefetching 2 kB ahead makes them 1.5 times as slow on AMD processors and
// changes little on Intel processors.
const long FEW_ROWS_PREFETCH = [] {
    __builtin_cpu_init();
    return __builtin_cpu_is("intel") ? 2048L : 0L;
}();
#endif

const Kernels* find_kernels(const char* name) {
    const Kernels* usable[5];
    int count = 0;
#if defined(__x86_64__)
    static const Processor processor;
#if !defined(WITHOUT_KERNELS_AMX) // not supported by the compiler
    if (processor.amx) usable[count++] = &AMX;
#endif
#if !defined(WITHOUT_KERNELS_AVX512)
    if (processor.avx512) usable[count++] = &AVX512;
#endif
#if !defined(WITHOUT_KERNELS_AVXVNNI)
    if (processor.avx_vnni) usable[count++] = &AVX_VNNI;
#endif
#if !defined(WITHOUT_KERNELS_AVX2)
    if (processor.avx2) usable[count++] = &AVX2;
#endif
#endif
#if defined(__wasm__)
    usable[count++] = &WASM;
#else
    usable[count++] = &PORTABLE;
#endif
    for (int i = 0; i < count; ++i)
        if (!name || !*name || std::strcmp(usable[i]->name, name) == 0) return usable[i];
    return nullptr;
}

} // namespace heedful
