#include "weight_file.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <vector>

#if !defined(__wasm__)
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#endif

namespace heedful {
namespace {

constexpr char MAGIC[8] = {'H', 'E', 'E', 'D', 'F', 'U', 'L', 'N'};
constexpr uint32_t VERSION = 1;
constexpr size_t CHECKED_FROM = 64, SHAPE_AT = 96, ENTRIES_AT = 192;
constexpr uint32_t MAX_TENSORS = 100000;
constexpr size_t READ_CHUNK = 1 << 20; // bytes that a thread reads and checksums at a time

struct Head {
    char magic[8];
    uint32_t version, num_tensors;
    uint64_t size, sum, weighted_sum;
    unsigned char spare[24];
};

static_assert(sizeof(Head) == CHECKED_FROM && sizeof(Shape) == ENTRIES_AT - SHAPE_AT && sizeof(Entry) == 96,
              "the layout of the file");

void check_limits(const Shape& s, const std::string& path) {
    struct { const char* name; int32_t value, least, most; } limits[] = {
        {"d_model", s.d_model, 1, 65536}, {"d_ff", s.d_ff, 1, 65536}, {"num_heads", s.num_heads, 1, 4096},
        {"head_dim", s.head_dim, 1, 65536}, {"num_encoder_layers", s.num_encoder_layers, 1, 1000},
        {"num_decoder_layers", s.num_decoder_layers, 1, 1000}, {"source_vocab_size", s.source_vocab_size, 1, 1 << 24},
        {"target_vocab_size", s.target_vocab_size, 1, 1 << 24}, {"max_length", s.max_length, 1, 1 << 20},
        {"norm_before", s.norm_before, 0, 1}, {"only_scale", s.only_scale, 0, 1},
        {"has_final_norm", s.has_final_norm, 0, 1}, {"rotary", s.rotary, 0, 1}, {"activation", s.activation, 1, 3},
        {"int8", s.int8, 0, 1}, {"tied_embedding", s.tied_embedding, 0, 1},
    };
    for (const auto& limit : limits)
        if (limit.value < limit.least || limit.value > limit.most)
            fail(path + " is damaged: " + limit.name + " is " + std::to_string(limit.value));
    if (static_cast<long>(s.num_heads) * s.head_dim > 65536 || (s.rotary && s.head_dim % 2))
        fail(path + " is damaged: its heads cannot be of this size");
}

#if !defined(__wasm__)
struct OpenFile {
    explicit OpenFile(const std::string& path) : descriptor(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
        if (descriptor < 0) fail(path + ": cannot read the weights: " + std::strerror(errno));
    }
    ~OpenFile() { ::close(descriptor); }
    OpenFile(const OpenFile&) = delete;
    OpenFile& operator=(const OpenFile&) = delete;
    const int descriptor;
};
#endif

} // namespace

// Partial checksums of a range of words. The checksums of the file are the sums of its parts.
struct WeightFile::Sums {
    uint64_t sum = 0, weighted = 0;
    void add(const uint64_t* words, size_t begin, size_t end) {
        for (size_t i = begin; i < end; ++i) {
            sum += words[i];
            weighted += words[i] * (i + 1);
        }
    }
};

#if !defined(__wasm__)
WeightFile::WeightFile(const std::string& path, ThreadPool& pool) : path_(path) {
    const OpenFile file(path);
    struct stat status {};
    if (::fstat(file.descriptor, &status) != 0 || !S_ISREG(status.st_mode)) fail(path + ": cannot read the weights: not a file");
    reserve_contents(static_cast<size_t>(status.st_size));
    check(read(file.descriptor, pool));
}
#endif

WeightFile::WeightFile(const unsigned char* contents, size_t size) : path_("the weight file") {
    unsigned char* to = reserve_contents(size);
    std::memcpy(to, contents, size);
    Sums sums;
    sums.add(reinterpret_cast<const uint64_t*>(to + CHECKED_FROM), 0, (size - CHECKED_FROM) / 8);
    check(sums);
}

unsigned char* WeightFile::reserve_contents(size_t size) {
    size_ = size;
    if (size_ < ENTRIES_AT) damaged("it is cut short");
    if (size_ % 64 != 0) damaged("it has not its full size");
    unsigned char* to = contents_.reserve(size_ + READ_AHEAD);
    bytes_ = to;
    std::memset(to + size_, 0, READ_AHEAD);
    return to;
}

#if !defined(__wasm__)
// Read the file and compute its checksums with all threads.
WeightFile::Sums WeightFile::read(int file, ThreadPool& pool) {
    unsigned char* to = contents_.data();
    std::vector<Sums> parts((size_ + READ_CHUNK - 1) / READ_CHUNK);
    std::atomic<int> problem{0}; // errno, or -1 if the file is too short
    pool.each(static_cast<long>(parts.size()), [&](long part, int) {
        const size_t begin = part * READ_CHUNK, end = std::min(begin + READ_CHUNK, size_);
        for (size_t at = begin; at < end;) {
            const ssize_t count = ::pread(file, to + at, end - at, static_cast<off_t>(at));
            if (count < 0 && errno == EINTR) continue;
            if (count <= 0) {
                problem.store(count == 0 ? -1 : errno, std::memory_order_relaxed);
                return;
            }
            at += static_cast<size_t>(count);
        }
        Sums local; // avoids false sharing
        const uint64_t* words = reinterpret_cast<const uint64_t*>(to + CHECKED_FROM);
        local.add(words, begin < CHECKED_FROM ? 0 : (begin - CHECKED_FROM) / 8, (end - CHECKED_FROM) / 8);
        parts[part] = local;
    });
    if (problem < 0) damaged("it is cut short");
    if (problem > 0) fail(path_ + ": cannot read the weights: " + std::strerror(problem));
    Sums total;
    for (const Sums& part : parts) total.sum += part.sum, total.weighted += part.weighted;
    return total;
}
#endif

void WeightFile::damaged(const std::string& how) const {
    fail(path_ + " is damaged: " + how + "; delete it, and it is made again from the model");
}

void WeightFile::check(const Sums& sums) {
    Head head;
    std::memcpy(&head, bytes_, sizeof head);
    if (std::memcmp(head.magic, MAGIC, sizeof MAGIC) != 0) damaged("it is no file of native weights");
    if (head.version != VERSION) damaged("it has version " + std::to_string(head.version) + ", not 1");
    if (head.size != size_) damaged("it has not its full size");
    for (unsigned char byte : head.spare)
        if (byte) damaged("its head is not as written");
    if (sums.sum != head.sum || sums.weighted != head.weighted_sum) damaged("its checksum is wrong");
    num_tensors_ = head.num_tensors;
    if (num_tensors_ > MAX_TENSORS || ENTRIES_AT + num_tensors_ * sizeof(Entry) > size_) damaged("its list is cut short");
    std::memcpy(&shape_, bytes_ + SHAPE_AT, sizeof shape_);
    check_limits(shape_, path_);
    const Entry* entries = reinterpret_cast<const Entry*>(bytes_ + ENTRIES_AT);
    for (uint32_t i = 0; i < num_tensors_; ++i) {
        const Entry& entry = entries[i];
        const uint64_t width = entry.kind == INT8 ? 1 : 4;
        if (entry.kind > INT32 || std::memchr(entry.name, 0, sizeof entry.name) == nullptr) damaged("a tensor of no known kind");
        if (entry.offset % 64 || entry.offset > size_ || entry.bytes > size_ - entry.offset) damaged("a tensor out of bounds");
        if (entry.bytes != width * entry.rows * entry.columns) damaged(std::string(entry.name) + " has a wrong size");
    }
}

const Entry* WeightFile::find(const std::string& name) const {
    const Entry* entries = reinterpret_cast<const Entry*>(bytes_ + ENTRIES_AT);
    for (uint32_t i = 0; i < num_tensors_; ++i)
        if (name == entries[i].name) return &entries[i];
    return nullptr;
}

const void* WeightFile::tensor(const std::string& name, Kind kind, long rows, long columns) const {
    const Entry* entry = find(name);
    if (!entry) damaged(name + " is missing");
    if (entry->kind != kind || entry->rows != rows || entry->columns != columns) damaged(name + " has a wrong shape");
    return bytes_ + entry->offset;
}

} // namespace heedful
