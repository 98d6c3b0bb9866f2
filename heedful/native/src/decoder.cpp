#include "decoder.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

namespace heedful {
namespace {

constexpr int CHUNK_TILES = 16; // of the vocabulary, looked through together
constexpr int CHUNK = CHUNK_TILES * TILE;
constexpr int CHUNK_STRIDE = CHUNK + 16; // rows a power of two apart would share few places of the cache
constexpr float NOTHING = -std::numeric_limits<float>::infinity();

bool better(const Candidate& a, const Candidate& b) {
    return a.value > b.value || (a.value == b.value && a.token < b.token);
}

} // namespace

void Decoder::begin(const Memory& memory, long num_slots, long capacity) {
    memory_ = &memory;
    num_slots_ = num_slots, capacity_ = capacity;
    cache_.room(static_cast<long>(model_.decoder.size()) * num_slots * capacity * entry());
    long longest = capacity;
    for (const long* start = memory.starts; *start < memory.num_rows; ++start) longest = std::max(longest, start[1] - start[0]);
    scores_room_ = padded(longest, 16) + 16;
    scores_.room(pool_.size() * MOST_QUERIES * model_.shape.num_heads * scores_room_);
    offsets_.room(longest);
    for (long t = 0; t < longest; ++t) offsets_.data()[t] = t * memory.stride;
}

void Decoder::step(const std::vector<Asking>& asking) {
    open(static_cast<long>(asking.size()));
    groups_.clear();
    for (long first = 0, end = 0; first < num_rows_; first = end) { // hypotheses of a sentence attend to the same memory
        while (end < num_rows_ && asking[end].sentence == asking[first].sentence) ++end;
        group(first, end);
    }
    const size_t last = model_.decoder.size() - 1;
    const Norm* final_norm = model_.shape.has_final_norm ? &model_.decoder_norm : nullptr;
    each_row([&](long row, int) {
        start(row, model_.target_embedding, model_.target_positions, asking[row].token, asking[row].position);
        offer_stream(row, if_before(model_.decoder[0].self_norm));
    });
    for (size_t i = 0; i <= last; ++i) {
        const DecoderLayer& layer = model_.decoder[i];
        attend_self(layer, static_cast<long>(i), asking);
        attend_memory(layer, static_cast<long>(i), asking);
        feed_forward(layer.feed_forward, i == last ? final_norm : if_before(model_.decoder[i + 1].self_norm));
    }
}

void Decoder::attend_self(const DecoderLayer& layer, long index, const std::vector<Asking>& asking) {
    const Shape& shape = model_.shape;
    const int inner = model_.inner();
    const long first = index * num_slots_ * capacity_ * entry();
    multiply(layer.self_input, wide_, wide_stride_);
    each_row([&](long row, int thread) {
        const Asking& ask = asking[row];
        if (model_.turns)
            kernels_.rotate(wide(row), 2 * shape.num_heads, shape.head_dim, model_.turns + static_cast<long>(ask.position) * shape.head_dim);
        cache_.put(first + ask.places[ask.position], wide(row) + inner, 2 * inner);
        const Attended attended = {cache_.at(first), cache_.halves(), ask.places,     ask.position + 1,     inner,
                                   shape.num_heads, shape.head_dim, shape.attention_scale, scores_room_};
        kernels_.attend(wide(row), 0, 1, attended, scores(thread), narrow(row), 0);
        offer(row, narrow(row), inner);
    });
    multiply(layer.self_output, narrow_, narrow_stride_);
    each_row([&](long row, int) {
        join(row, layer.self_norm);
        offer_stream(row, if_before(layer.cross_norm));
    });
}

void Decoder::attend_memory(const DecoderLayer& layer, long index, const std::vector<Asking>& asking) {
    const Shape& shape = model_.shape;
    const int inner = model_.inner();
    const long shown = std::max<long>(static_cast<long>(model_.decoder.size()) - 2, 0); // alignments follow it best
    multiply(layer.cross_query, wide_, wide_stride_);
    each_group([&](Group group, int thread) {
        const long* start = memory_->starts + asking[group.first].sentence;
        const Attended attended = {memory_->kept.at(memory_->place(index, start[0])), memory_->kept.halves(), offsets_.data(),
                                   static_cast<int>(start[1] - start[0]),           inner,
                                   shape.num_heads, shape.head_dim,                 shape.attention_scale, scores_room_};
        kernels_.attend(wide(group.first), wide_stride_, group.count, attended, scores(thread), narrow(group.first), narrow_stride_);
        for (long row = group.first; row < group.first + group.count; ++row) offer(row, narrow(row), inner);
        if (index == shown && asking[group.first].weights) show(asking[group.first].weights, attended.count, scores(thread));
    });
    multiply(layer.cross_output, narrow_, narrow_stride_);
    each_row([&](long row, int) {
        join(row, layer.cross_norm);
        offer_stream(row, if_before(layer.feed_forward.norm));
    });
}

// The mean over the heads of a row that attended alone.
void Decoder::show(float* to, int count, const float* scores) const {
    const int num_heads = model_.shape.num_heads;
    for (int t = 0; t < count; ++t) {
        float sum = 0.0f;
        for (int head = 0; head < num_heads; ++head) sum += scores[head * scores_room_ + t];
        to[t] = sum / static_cast<float>(num_heads);
    }
}

void Decoder::choose_from(std::vector<std::vector<int32_t>> lists) {
    if (lists.empty()) selection_.clear();
    else selection_.set(model_.output, std::move(lists), pool_);
}

const std::vector<Answer>& Decoder::answers(const std::vector<Asking>& asking, int keep) {
    if (selection_.is_set()) return selected_answers(asking, keep);
    const long chunks = (model_.output.num_tiles + CHUNK_TILES - 1) / CHUNK_TILES;
    logits_.room(pool_.size() * num_rows_ * CHUNK_STRIDE);
    partials_.room(2 * num_rows_ * chunks);
    Candidate* candidates = candidates_.room((pool_.size() + 1) * num_rows_ * keep);
    std::fill(candidates, candidates + (pool_.size() + 1) * num_rows_ * keep, Candidate{NOTHING, -1});
    answers_.resize(num_rows_);
    pool_.each(chunks, [&](long chunk, int thread) { judge(asking, chunk, thread, keep); });
    each_row([&](long row, int) { gather(row, partials_.data() + 2 * row * chunks, keep); });
    return answers_;
}

// A chunk's logits: its share of each row's sum, and its best candidates beside those this thread found before.
void Decoder::judge(const std::vector<Asking>& asking, long chunk, int thread, int keep) {
    const Linear& output = model_.output;
    const int first_tile = static_cast<int>(chunk) * CHUNK_TILES, end_tile = std::min(first_tile + CHUNK_TILES, output.num_tiles);
    const int first = first_tile * TILE, count = std::min(first + CHUNK, output.outputs) - first;
    const long chunks = (output.num_tiles + CHUNK_TILES - 1) / CHUNK_TILES;
    float* logits = logits_.data() + thread * num_rows_ * CHUNK_STRIDE;
    kernels_.multiply(output, rows_, {0, num_rows_, first_tile, end_tile}, logits, CHUNK_STRIDE, NO_ACTIVATION);
    for (long row = 0; row < num_rows_; ++row) {
        float* own = logits + row * CHUNK_STRIDE;
        float* partial = partials_.data() + 2 * (row * chunks + chunk);
        kernels_.scan(own, count, partial, partial + 1);
        const int32_t wanted = asking[row].wanted - first;
        if (wanted >= 0 && wanted < count) answers_[row].wanted = own[wanted];
        for (int32_t token : asking[row].banned)
            if (token >= first && token < first + count) own[token - first] = NOTHING;
        Candidate* best = candidates_.data() + ((thread + 1) * num_rows_ + row) * keep;
        if (partial[0] >= best[keep - 1].value) kernels_.choose(own, count, first, best, keep);
    }
}

// log Σ exp(logit), from the largest logit and the sum of each chunk, in their order.
float Decoder::log_of_sum(const float* partials, long chunks) {
    float largest = NOTHING;
    for (long c = 0; c < chunks; ++c) largest = std::max(largest, partials[2 * c]);
    double sum = 0;
    for (long c = 0; c < chunks; ++c) sum += partials[2 * c + 1] * std::exp(static_cast<double>(partials[2 * c]) - largest);
    return static_cast<float>(largest + std::log(sum));
}

// A row's sum from its chunks, and the best of what the threads found.
void Decoder::gather(long row, float* partials, int keep) {
    const long chunks = (model_.output.num_tiles + CHUNK_TILES - 1) / CHUNK_TILES;
    answers_[row].log_sum = log_of_sum(partials, chunks);
    Candidate* best = candidates_.data() + row * keep;
    for (int thread = 1; thread <= pool_.size(); ++thread) {
        const Candidate* found = candidates_.data() + (thread * num_rows_ + row) * keep;
        for (int i = 0; i < keep && found[i].token >= 0; ++i) {
            int place = keep;
            while (place > 0 && (best[place - 1].token < 0 || better(found[i], best[place - 1]))) --place;
            if (place == keep) break;
            std::copy_backward(best + place, best + keep - 1, best + keep);
            best[place] = found[i];
        }
    }
    answers_[row].best = best;
}

// All rows meet the columns of all sentences; then each looks at its own sentence's candidates alone.
const std::vector<Answer>& Decoder::selected_answers(const std::vector<Asking>& asking, int keep) {
    selected_stride_ = static_cast<long>(selection_.columns().num_tiles) * TILE + 16;
    own_room_ = padded(static_cast<long>(selection_.longest()), CHUNK);
    float* logits = logits_.room(num_rows_ * selected_stride_);
    own_.room(pool_.size() * own_room_);
    partials_.room(2 * pool_.size() * own_room_ / CHUNK);
    Candidate* candidates = candidates_.room(num_rows_ * keep);
    std::fill(candidates, candidates + num_rows_ * keep, Candidate{NOTHING, -1});
    answers_.resize(num_rows_);
    multiply(selection_.columns(), logits, selected_stride_);
    each_row([&](long row, int thread) { judge_selected(asking[row], row, thread, keep); });
    return answers_;
}

// Chunks are those of the sentence's own list, so that its sums have the same order in any company.
void Decoder::judge_selected(const Asking& ask, long row, int thread, int keep) {
    const std::vector<int32_t>& list = selection_.list(ask.sentence);
    const long count = static_cast<long>(list.size()), chunks = (count + CHUNK - 1) / CHUNK;
    float *own = logits_.data() + row * selected_stride_, *partials = partials_.data() + 2 * thread * own_room_ / CHUNK;
    if (const int32_t* places = selection_.places(ask.sentence)) {
        const float* all = own;
        own = own_.data() + thread * own_room_;
        for (long i = 0; i < count; ++i) own[i] = all[places[i]];
    }
    auto find = [&](int32_t token) {
        const auto found = std::lower_bound(list.begin(), list.end(), token);
        return found != list.end() && *found == token ? found - list.begin() : -1L;
    };
    for (long c = 0; c < chunks; ++c)
        kernels_.scan(own + c * CHUNK, static_cast<int>(std::min<long>(CHUNK, count - c * CHUNK)), partials + 2 * c, partials + 2 * c + 1);
    Answer& answer = answers_[row];
    answer.log_sum = log_of_sum(partials, chunks);
    if (const long wanted = find(ask.wanted); wanted >= 0) answer.wanted = own[wanted];
    for (int32_t token : ask.banned)
        if (const long place = find(token); place >= 0) own[place] = NOTHING;
    Candidate* best = candidates_.data() + row * keep;
    for (long c = 0; c < chunks; ++c) {
        const int first = static_cast<int>(c) * CHUNK, end = static_cast<int>(std::min<long>(first + CHUNK, count));
        if (partials[2 * c] >= best[keep - 1].value) kernels_.choose(own + first, end - first, first, best, keep);
    }
    for (int i = 0; i < keep && best[i].token >= 0; ++i) best[i].token = list[best[i].token];
    answer.best = best;
}

void Decoder::logits(float* to) {
    const long stride = static_cast<long>(model_.output.num_tiles) * TILE;
    float* all = logits_.room(num_rows_ * stride);
    multiply(model_.output, all, stride);
    for (long row = 0; row < num_rows_; ++row)
        std::memcpy(to + row * model_.output.outputs, all + row * stride, model_.output.outputs * sizeof(float));
}

} // namespace heedful
