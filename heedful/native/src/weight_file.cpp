#include "weight_file.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <vector>

namespace heedful {
namespace {

constexpr char MAGIC[8] = {'H', 'E', 'E', 'D', 'F', 'U', 'L', 'N'};
constexpr uint32_t VERSION = 1;
constexpr size_t SUMMED_FROM = 64, SHAPE_AT = 96, ENTRIES_AT = 192;
constexpr uint32_t MOST_TENSORS = 100000;
constexpr size_t WORDS_AT_ONCE = 1 << 17; // a MiB: what a thread sums up at a time

struct Head {
    char magic[8];
    uint32_t version, num_tensors;
    uint64_t size, sum, weighted_sum;
    unsigned char spare[24];
};

static_assert(sizeof(Head) == SUMMED_FROM && sizeof(Shape) == ENTRIES_AT - SHAPE_AT && sizeof(Entry) == 96,
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
            throw Error(path + " is damaged: " + limit.name + " is " + std::to_string(limit.value));
    if (static_cast<long>(s.num_heads) * s.head_dim > 65536 || (s.rotary && s.head_dim % 2))
        throw Error(path + " is damaged: its heads cannot be of this size");
}

// A part of the two checksums: of words that begin at some place in the whole. Parts add up to the checksums.
struct Sums {
    uint64_t sum = 0, weighted = 0;
    void add(const uint64_t* words, size_t begin, size_t end) {
        for (size_t i = begin; i < end; ++i) {
            sum += words[i];
            weighted += words[i] * (i + 1);
        }
    }
};

} // namespace

WeightFile::WeightFile(const std::string& path, Pool& pool) : path_(path) {
    const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (file < 0) throw Error(path + ": cannot read the weights: " + std::strerror(errno));
    struct stat status {};
    if (::fstat(file, &status) != 0 || !S_ISREG(status.st_mode)) {
        ::close(file);
        throw Error(path + ": cannot read the weights: not a file");
    }
    size_ = static_cast<size_t>(status.st_size);
    void* mapped = size_ < ENTRIES_AT ? nullptr : ::mmap(nullptr, size_, PROT_READ, MAP_SHARED, file, 0);
    ::close(file);
    if (mapped == nullptr) damaged("it is cut short");
    if (mapped == MAP_FAILED) throw Error(path + ": cannot map the weights: " + std::strerror(errno));
    bytes_ = static_cast<const unsigned char*>(mapped);
    try {
        check(pool);
    } catch (...) {
        ::munmap(mapped, size_);
        throw;
    }
}

WeightFile::~WeightFile() { ::munmap(const_cast<unsigned char*>(bytes_), size_); }

void WeightFile::damaged(const std::string& how) const {
    throw Error(path_ + " is damaged: " + how + "; delete it, and it is made again from the model");
}

void WeightFile::check(Pool& pool) {
    Head head;
    std::memcpy(&head, bytes_, sizeof head);
    if (std::memcmp(head.magic, MAGIC, sizeof MAGIC) != 0) damaged("it is no file of native weights");
    if (head.version != VERSION) damaged("it has version " + std::to_string(head.version) + ", not 1");
    if (head.size != size_ || size_ % 64 != 0) damaged("it has not its full size");
    for (unsigned char byte : head.spare)
        if (byte) damaged("its head is not as written");
    const size_t count = (size_ - SUMMED_FROM) / 8;
    const uint64_t* words = reinterpret_cast<const uint64_t*>(bytes_ + SUMMED_FROM);
    std::vector<Sums> parts((count + WORDS_AT_ONCE - 1) / WORDS_AT_ONCE);
    pool.each(static_cast<long>(parts.size()), [&](long part, int) {
        const size_t begin = part * WORDS_AT_ONCE, end = begin + WORDS_AT_ONCE;
        Sums own; // not in its place, beside which another thread writes
        own.add(words, begin, end < count ? end : count);
        parts[part] = own;
    });
    Sums whole;
    for (const Sums& part : parts) whole.sum += part.sum, whole.weighted += part.weighted;
    if (whole.sum != head.sum || whole.weighted != head.weighted_sum) damaged("its checksum is wrong");
    num_tensors_ = head.num_tensors;
    if (num_tensors_ > MOST_TENSORS || ENTRIES_AT + num_tensors_ * sizeof(Entry) > size_) damaged("its list is cut short");
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
