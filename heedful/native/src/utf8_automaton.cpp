#include "utf8_automaton.h"

#include <algorithm>

namespace heedful {
namespace {

enum State { COMPLETE, ONE, TWO, THREE, AFTER_C2, AFTER_E0, AFTER_ED, AFTER_EF, AFTER_EFBF, AFTER_F0, AFTER_F4 };

struct Step {
    State from;
    int first, last; // bytes
    State to;
};

constexpr Step STEPS[] = {
    {COMPLETE, 0x09, 0x0A, COMPLETE}, {COMPLETE, 0x0D, 0x0D, COMPLETE}, {COMPLETE, 0x20, 0x7E, COMPLETE},
    {COMPLETE, 0xC2, 0xC2, AFTER_C2}, {COMPLETE, 0xC3, 0xDF, ONE},      {COMPLETE, 0xE0, 0xE0, AFTER_E0},
    {COMPLETE, 0xE1, 0xEC, TWO},      {COMPLETE, 0xED, 0xED, AFTER_ED}, {COMPLETE, 0xEE, 0xEE, TWO},
    {COMPLETE, 0xEF, 0xEF, AFTER_EF}, {COMPLETE, 0xF0, 0xF0, AFTER_F0}, {COMPLETE, 0xF1, 0xF3, THREE},
    {COMPLETE, 0xF4, 0xF4, AFTER_F4}, {ONE, 0x80, 0xBF, COMPLETE},      {TWO, 0x80, 0xBF, ONE},
    {THREE, 0x80, 0xBF, TWO},         {AFTER_C2, 0xA0, 0xBF, COMPLETE}, {AFTER_E0, 0xA0, 0xBF, ONE},
    {AFTER_ED, 0x80, 0x9F, ONE},      {AFTER_EF, 0x80, 0xBE, ONE},      {AFTER_EF, 0xBF, 0xBF, AFTER_EFBF},
    {AFTER_EFBF, 0x80, 0xBC, COMPLETE}, {AFTER_F0, 0x90, 0xBF, TWO},    {AFTER_F4, 0x80, 0x8F, TWO},
};

struct Table {
    int8_t next[Utf8Automaton::STATES][Utf8Automaton::BYTES];
    Table() {
        std::fill(&next[0][0], &next[0][0] + Utf8Automaton::STATES * Utf8Automaton::BYTES, int8_t(-1));
        for (const Step& step : STEPS) std::fill(next[step.from] + step.first, next[step.from] + step.last + 1, int8_t(step.to));
    }
};

const Table& table() {
    static const Table made;
    return made;
}

} // namespace

void Utf8Automaton::set(const int32_t* byte_ids, int32_t vocab_size, const int32_t* forbidden, int32_t num_forbidden) {
    forbidden_.assign(forbidden, forbidden + num_forbidden);
    tokens_.clear();
    byte_of_.clear();
    if (byte_ids) {
        tokens_.assign(byte_ids, byte_ids + BYTES);
        byte_of_.assign(vocab_size, -1);
        for (int byte = 0; byte < BYTES; ++byte) byte_of_[byte_ids[byte]] = static_cast<int16_t>(byte);
        for (int byte = 0; byte < BYTES; ++byte)
            if (table().next[COMPLETE][byte] < 0) forbidden_.push_back(byte_ids[byte]);
        for (int state = 1; state < STATES; ++state) {
            only_[state].clear();
            for (int byte = 0; byte < BYTES; ++byte)
                if (table().next[state][byte] >= 0) only_[state].push_back(byte_ids[byte]);
            std::sort(only_[state].begin(), only_[state].end());
        }
    }
    std::sort(forbidden_.begin(), forbidden_.end());
}

int Utf8Automaton::next(int state, int32_t token) const {
    const int byte = token >= 0 && token < static_cast<int32_t>(byte_of_.size()) ? byte_of_[token] : -1;
    if (byte < 0) return COMPLETE;
    const int after = table().next[state][byte] >= 0 ? table().next[state][byte] : table().next[COMPLETE][byte];
    return std::max<int>(after, COMPLETE);
}

void Utf8Automaton::ban_unfitting(int remaining, std::vector<int32_t>& banned) const {
    if (tokens_.empty() || remaining >= 3) return;
    const int first = remaining >= 2 ? 0xF0 : remaining == 1 ? 0xE0 : 0xC2;
    banned.insert(banned.end(), tokens_.begin() + first, tokens_.begin() + 0xF5);
}

} // namespace heedful
