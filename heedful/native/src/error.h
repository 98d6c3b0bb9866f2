// Errors that the user can fix, and how they are raised.
#pragma once

#include <stdexcept>
#include <string>

namespace heedful {

struct Error : std::runtime_error {
    using std::runtime_error::runtime_error;
};

constexpr const char* NO_MEMORY = "there is not enough memory; translate fewer or shorter sentences at once, or name the tensors of a trace that are needed (wanted)";

#if defined(__cpp_exceptions)
[[noreturn]] inline void fail(const std::string& message) { throw Error(message); }
[[noreturn]] inline void fail_allocation() { throw std::bad_alloc(); }
#else // WebAssembly: the host raises the error, and the engine must not be used afterwards
extern "C" [[noreturn]] __attribute__((import_module("heedful"), import_name("fail"))) void heedful_host_fail(const char* message, size_t length);
[[noreturn]] inline void fail(const std::string& message) { heedful_host_fail(message.data(), message.size()); }
[[noreturn]] inline void fail_allocation() { fail(NO_MEMORY); }
#endif

} // namespace heedful
