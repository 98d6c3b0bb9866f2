// What SentencePiece uses and WebAssembly lacks: threads and exceptions. Included before all else.
#pragma once
#include <algorithm>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace std {
struct mutex {
    void lock() {}
    void unlock() {}
    bool try_lock() { return true; }
};
template <class Mutex> struct lock_guard {
    explicit lock_guard(Mutex&) {}
    ~lock_guard() {}
};
template <class Mutex> struct unique_lock {
    unique_lock() {}
    explicit unique_lock(Mutex&) {}
    ~unique_lock() {}
    void lock() {}
    void unlock() {}
};
struct thread {
    using id = int;
    template <class Work, class... Arguments> explicit thread(Work&& work, Arguments&&... arguments) { work(arguments...); }
    void join() {}
};
template <class T> shared_ptr<T> atomic_load(const shared_ptr<T>* from) { return *from; }
template <class T> void atomic_store(shared_ptr<T>* to, shared_ptr<T> value) { *to = value; }
namespace this_thread {
inline int get_id() { return 1; }
}
} // namespace std

// There are no exceptions: what would be thrown ends the program, and the page reports it.
#define try if (true)
#define catch(...) if (false)
#define throw ::abort(), (void)
