#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <vector>

#include "beam_search.h"
#include "trace.h"

namespace {

struct Engine {
#if !defined(__wasm__)
    Engine(const std::string& path, int threads, const heedful::Kernels& chosen)
        : pool(threads), model(std::make_shared<heedful::Model>(path, pool)), kernels(chosen), search(*model, kernels, pool) {}
#endif
    Engine(const unsigned char* contents, size_t size, int threads, const heedful::Kernels& chosen)
        : pool(threads), model(std::make_shared<heedful::Model>(contents, size, pool)), kernels(chosen), search(*model, kernels, pool) {}
    Engine(std::shared_ptr<const heedful::Model> shared, int threads, const heedful::Kernels& chosen)
        : pool(threads), model(std::move(shared)), kernels(chosen), search(*model, kernels, pool) {}
    heedful::ThreadPool pool;
    std::shared_ptr<const heedful::Model> model;
    const heedful::Kernels& kernels;
    heedful::Search search;
    heedful::Mutex mutex; // serializes calls
};

void check_threads(int32_t count) {
    if (count < 1 || count > 1024) heedful::fail("the number of threads must be from 1 to 1024");
}

const heedful::Kernels& checked_kernels(const char* name, int32_t num_threads) {
    const heedful::Kernels* found = heedful::find_kernels(name);
    if (!found) heedful::fail(std::string("this processor has no ") + name + " kernels");
    check_threads(num_threads);
    return *found;
}

// Run `work` and convert exceptions to messages.
template <class Work> int32_t catch_errors(char* message, int64_t message_size, Work&& work) {
#if !defined(__cpp_exceptions)
    static_cast<void>(message), static_cast<void>(message_size);
    work();
    return 1;
#else
    try {
        work();
        return 1;
    } catch (const std::bad_alloc&) {
        std::snprintf(message, static_cast<size_t>(message_size), "%s", heedful::NO_MEMORY);
    } catch (const std::exception& error) {
        std::snprintf(message, static_cast<size_t>(message_size), "%s", error.what());
    }
    return 0;
#endif
}

} // namespace

int32_t heedful_interface_version() { return 16; }

const char* heedful_kernels(const char* name) {
    const heedful::Kernels* found = heedful::find_kernels(name);
    return found ? found->name : "";
}

void* heedful_open_memory(const unsigned char* contents, int64_t size, int32_t num_threads, const char* kernels, char* message, int64_t message_size) {
    Engine* engine = nullptr;
    catch_errors(message, message_size, [&] { engine = new Engine(contents, static_cast<size_t>(size), num_threads, checked_kernels(kernels, num_threads)); });
    return engine;
}

#if defined(__wasm__)
namespace {

#if defined(__wasm_atomics__) // the library's functions are not safe for threads
std::atomic<bool> is_allocating{false};
struct AllocationLock {
    AllocationLock() {
        while (is_allocating.exchange(true)) {}
    }
    ~AllocationLock() { is_allocating.store(false); }
};
#else
struct AllocationLock {
    ~AllocationLock() {}
};
#endif

} // namespace

// Without exceptions, the library would end in a trap if memory is short.
void* operator new(size_t size) {
    void* memory = nullptr;
    {
        const AllocationLock lock;
        memory = std::malloc(size);
    }
    if (!memory) heedful::fail_allocation();
    return memory;
}
void operator delete(void* memory) noexcept {
    const AllocationLock lock;
    std::free(memory);
}
void operator delete(void* memory, size_t) noexcept { operator delete(memory); }

#if defined(__wasm_atomics__)
void* heedful_pool(void* engine) { return &static_cast<Engine*>(engine)->pool; }
void heedful_help(void* pool, int32_t thread) { static_cast<heedful::ThreadPool*>(pool)->help(thread); }
void heedful_help_failed(void* pool) { static_cast<heedful::ThreadPool*>(pool)->set_failed(); }
#endif
#else
void* heedful_open(const char* path, int32_t num_threads, const char* kernels, char* message, int64_t message_size) {
    Engine* engine = nullptr;
    catch_errors(message, message_size, [&] {
        engine = new Engine(std::string(path), num_threads, checked_kernels(kernels, num_threads));
    });
    return engine;
}
#endif

void* heedful_open_shared(void* other, int32_t num_threads, char* message, int64_t message_size) {
    Engine* engine = nullptr;
    catch_errors(message, message_size, [&] {
        check_threads(num_threads);
        const Engine& first = *static_cast<Engine*>(other);
        engine = new Engine(first.model, num_threads, first.kernels);
        engine->search.use(first.search.shortlist());
    });
    return engine;
}

void heedful_close(void* engine) { delete static_cast<Engine*>(engine); }

int32_t heedful_shortlist(void* engine, const HeedfulShortlist* given, char* message, int64_t message_size) {
    Engine& opened = *static_cast<Engine*>(engine);
    return catch_errors(message, message_size, [&] {
        const heedful::Lock lock(opened.mutex);
        opened.search.use(std::make_shared<heedful::Shortlist>(*given, opened.model->shape));
    });
}

int32_t heedful_translate(void* engine, const HeedfulSettings* settings, const HeedfulSentences* sentences,
                          HeedfulResults* results, char* message, int64_t message_size) {
    Engine& opened = *static_cast<Engine*>(engine);
    return catch_errors(message, message_size, [&] {
        const heedful::Lock lock(opened.mutex);
        opened.search.run(*settings, *sentences, *results);
    });
}

void* heedful_translate_tree(void* engine, const HeedfulSettings* settings, const HeedfulSentences* sentences,
                             HeedfulResults* results, char* message, int64_t message_size) {
    Engine& opened = *static_cast<Engine*>(engine);
    heedful::BeamTree* tree = nullptr;
    catch_errors(message, message_size, [&] {
        const heedful::Lock lock(opened.mutex);
        heedful::BeamTree nodes;
        opened.search.run(*settings, *sentences, *results, &nodes);
        tree = new heedful::BeamTree(std::move(nodes));
    });
    return tree;
}

int64_t heedful_tree_nodes(const void* tree, const HeedfulTreeNode** nodes) {
    const heedful::BeamTree& found = *static_cast<const heedful::BeamTree*>(tree);
    *nodes = found.data();
    return static_cast<int64_t>(found.size());
}

void heedful_tree_free(void* tree) { delete static_cast<heedful::BeamTree*>(tree); }

int32_t heedful_align(void* engine, const HeedfulPairs* pairs, int32_t layer, int32_t head, float* to, char* message, int64_t message_size) {
    Engine& opened = *static_cast<Engine*>(engine);
    return catch_errors(message, message_size, [&] {
        const heedful::Lock lock(opened.mutex);
        opened.search.align(*pairs, {layer, head}, to);
    });
}

int32_t heedful_logits(void* engine, const int32_t* source, int64_t source_length, const int32_t* target,
                       int64_t target_length, float* to, char* message, int64_t message_size) {
    Engine& opened = *static_cast<Engine*>(engine);
    return catch_errors(message, message_size, [&] {
        const heedful::Lock lock(opened.mutex);
        opened.search.logits(source, source_length, target, target_length, to);
    });
}

void* heedful_trace(void* engine, const HeedfulSettings* settings, const HeedfulTraceRequest* request, char* message, int64_t message_size) {
    Engine& opened = *static_cast<Engine*>(engine);
    heedful::Trace* trace = nullptr;
    catch_errors(message, message_size, [&] {
        const heedful::Lock lock(opened.mutex);
        heedful::Tracer tracer(*opened.model, opened.kernels, opened.pool);
        trace = new heedful::Trace(tracer.run(*settings, *request));
    });
    return trace;
}

int64_t heedful_trace_target(const void* trace, const int32_t** tokens) {
    const heedful::Trace& found = *static_cast<const heedful::Trace*>(trace);
    *tokens = found.target.data();
    return static_cast<int64_t>(found.target.size());
}

int64_t heedful_trace_count(const void* trace) { return static_cast<int64_t>(static_cast<const heedful::Trace*>(trace)->tensors.size()); }

void heedful_trace_tensor(const void* trace, int64_t index, HeedfulTraceTensor* to) {
    const heedful::TraceTensor& found = static_cast<const heedful::Trace*>(trace)->tensors[index];
    *to = {found.name.c_str(), found.values.data(), {}, static_cast<int32_t>(found.shape.size()), 0};
    std::copy(found.shape.begin(), found.shape.end(), to->shape);
}

void heedful_trace_free(void* trace) { delete static_cast<heedful::Trace*>(trace); }

void heedful_speculation_counts(void* engine, int64_t* accepted, int64_t* rejected) {
    Engine& opened = *static_cast<Engine*>(engine);
    const heedful::Lock lock(opened.mutex);
    *accepted = opened.search.speculation_counts().accepted, *rejected = opened.search.speculation_counts().rejected;
}

int32_t heedful_dot(const char* kernels, const uint8_t* bytes, int64_t stride, int32_t rows, const int8_t* weights,
                    int32_t groups, int32_t* sums) {
    const heedful::Kernels* found = heedful::find_kernels(kernels);
    if (!found || rows < 1 || rows > heedful::MAX_ROWS) return 0;
    // Kernels may read and write full blocks of rows.
    std::vector<uint8_t> padded(heedful::MAX_ROWS * static_cast<size_t>(stride));
    std::copy(bytes, bytes + rows * stride, padded.begin());
    alignas(64) int32_t all[heedful::MAX_ROWS * heedful::TILE];
    found->dot(padded.data(), stride, rows, weights, groups, true, all);
    std::copy(all, all + rows * heedful::TILE, sums);
    return 1;
}

int32_t heedful_dot_nonzero(const char* kernels, const uint8_t* bytes, int32_t rows, int32_t inputs, const int8_t* weights,
                           int32_t spans, int32_t* sums) {
    const heedful::Kernels* found = heedful::find_kernels(kernels);
    if (!found || rows < 1 || rows > heedful::MAX_SPARSE_ROWS || inputs < 1 || inputs % heedful::STEP != 0) return 0;
    if (spans < 1 || spans > heedful::MAX_SPANS) return 0;
    const long capacity = inputs + 4 + heedful::NonzeroInputs::AHEAD;
    std::vector<int32_t> indices(capacity);
    std::vector<uint8_t> nonzero_bytes(rows * capacity);
    heedful::NonzeroInputs nonzero = {rows, 0, indices.data(), nonzero_bytes.data(), capacity};
    found->find_nonzero_inputs(bytes, inputs, inputs, nonzero);
    found->dot_nonzero(nonzero, weights, static_cast<long>(spans) * heedful::SPAN, spans, sums);
    return 1;
}

int32_t heedful_multiply_sketch(const char* kernels, const uint8_t* bytes, int32_t zero, const int8_t* weights, int32_t groups, float* to) {
    const heedful::Kernels* found = heedful::find_kernels(kernels);
    if (!found || !found->multiply_sketch || groups < 1 || groups % (heedful::STEP / 4) != 0) return 0;
    constexpr int TILE = heedful::TILE;
    std::vector<uint8_t> row(bytes, bytes + 4 * groups), codes(groups * TILE);
    std::vector<int32_t> sums(TILE);
    std::vector<float> half_steps(TILE), bias(TILE);
    found->sketch_tile(weights, groups, codes.data(), sums.data(), half_steps.data());
    float scale = 1.0f;
    heedful::Linear linear;
    linear.padded_inputs = 4 * groups, linear.bias = bias.data();
    heedful::Rows rows;
    rows.bytes = row.data(), rows.scales = &scale, rows.zeros = &zero;
    found->multiply_sketch(linear, {codes.data(), sums.data(), half_steps.data()}, rows, 0, 0, 1, to);
    return 1;
}
