// Which kernels this processor can run.
#include "kernels.h"

#include <cstring>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace heedful {
namespace {

#if defined(__x86_64__)
struct Processor {
    bool avx2 = false, avx_vnni = false, avx512 = false;

    Processor() {
        // The compiler's own test also asks whether the operating system keeps the wide registers.
        avx2 = __builtin_cpu_supports("avx2");
        avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                 __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
                 __builtin_cpu_supports("avx512vnni");
        unsigned a = 0, b = 0, c = 0, d = 0;
        avx_vnni = avx2 && __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a >> 4 & 1);
    }
};
#endif

} // namespace

const Kernels* find_kernels(const char* name) {
    const Kernels* usable[4];
    int count = 0;
#if defined(__x86_64__)
    const Processor processor;
    if (processor.avx512) usable[count++] = &AVX512;
    if (processor.avx_vnni) usable[count++] = &AVX_VNNI;
    if (processor.avx2) usable[count++] = &AVX2;
#endif
    usable[count++] = &PORTABLE;
    for (int i = 0; i < count; ++i)
        if (!name || !*name || std::strcmp(usable[i]->name, name) == 0) return usable[i];
    return nullptr;
}

} // namespace heedful
