#include "required_phrases.h"

#include <algorithm>

namespace heedful {

RequiredPhrases::RequiredPhrases(const HeedfulPhrases& given, int sentence)
    : word_flags_(given.word_flags), weight_(given.placement_weight) {
    for (int64_t p = given.starts[sentence]; p < given.starts[sentence + 1]; ++p) {
        Phrase phrase = {{}, given.sources[2 * p], given.sources[2 * p + 1], 0};
        for (int64_t a = given.alternative_starts[p]; a < given.alternative_starts[p + 1]; ++a) {
            phrase.alternatives.push_back({{given.tokens + given.token_starts[a], given.tokens + given.token_starts[a + 1]}, given.only_first[a] != 0});
            const std::vector<int32_t>& added = phrase.alternatives.back().tokens;
            tokens_.insert(tokens_.end(), added.begin(), added.end());
            const int length = static_cast<int>(added.size());
            phrase.shortest = phrase.shortest ? std::min(phrase.shortest, length) : length;
        }
        num_tokens_ += phrase.shortest;
        all_ |= uint64_t(1) << phrases_.size();
        phrases_.push_back(std::move(phrase));
    }
}

bool RequiredPhrases::is_inside_word(int32_t before, int32_t after) const {
    return word_flags_ && (word_flags_[before] & HEEDFUL_ENDS_IN_WORD) && (word_flags_[after] & HEEDFUL_CONTINUES_WORD);
}

float RequiredPhrases::mass(const float* weights) const {
    float sum = 0;
    for (const Phrase& phrase : phrases_)
        for (int s = phrase.first_source; s < phrase.end_source; ++s) sum += weights[s];
    return sum;
}

RequiredPhrases::Matches RequiredPhrases::find(uint64_t met, const std::vector<int32_t>& tokens, int at) const {
    Matches found;
    const int count = static_cast<int>(tokens.size());
    if (at > 0 && is_inside_word(tokens[at - 1], tokens[at])) return found;
    for (size_t p = 0; p < phrases_.size(); ++p) {
        if (met >> p & 1) continue;
        for (const auto& [wanted, only_first] : phrases_[p].alternatives) {
            if (only_first && at > 0) continue;
            const int length = static_cast<int>(wanted.size()), most = std::min(length, count - at);
            int same = 0;
            while (same < most && tokens[at + same] == wanted[same]) ++same;
            if (same < most) continue;
            const bool is_whole = same == length, is_last = at + same == count;
            if (is_last && (!is_whole || word_flags_)) found.is_open = true;
            if (is_whole && !is_last && is_inside_word(tokens[at + same - 1], tokens[at + same])) continue;
            Match& best = is_whole ? found.whole : found.begun;
            if (same > best.length) best = {static_cast<int>(p), same};
        }
    }
    return found;
}

PhraseStatus RequiredPhrases::status(const PhraseState& state, const std::vector<int32_t>& tokens, const std::vector<float>& masses) const {
    PhraseStatus status = {state.met, state.cost, state.progress};
    Match begun;
    float cost_before = 0;
    for (int at = state.position; at < static_cast<int>(tokens.size());) {
        const Matches found = find(status.met, tokens, at);
        if (found.whole.phrase >= 0) {
            status.met |= uint64_t(1) << found.whole.phrase;
            status.progress += phrases_[found.whole.phrase].shortest;
            begun = Match();
            at += found.whole.length;
        } else {
            if (begun.phrase < 0) begun = found.begun, cost_before = status.cost;
            if (at < static_cast<int>(masses.size())) status.cost += weight_ * masses[at];
            ++at;
        }
    }
    if (begun.phrase >= 0) {
        status.progress += std::min(begun.length, phrases_[begun.phrase].shortest - 1);
        status.cost = cost_before;
    }
    return status;
}

void RequiredPhrases::settle(PhraseState& state, const std::vector<int32_t>& tokens, const std::vector<float>& masses) const {
    while (state.position < static_cast<int>(tokens.size())) {
        const Matches found = find(state.met, tokens, state.position);
        if (found.is_open) return;
        if (found.whole.phrase < 0) {
            if (needs_attention() && state.position >= static_cast<int>(masses.size())) return;
            if (needs_attention()) state.cost += weight_ * masses[state.position];
            ++state.position;
            continue;
        }
        state.met |= uint64_t(1) << found.whole.phrase;
        state.progress += phrases_[found.whole.phrase].shortest;
        state.position += found.whole.length;
    }
}

void RequiredPhrases::next_tokens(const PhraseState& state, const std::vector<int32_t>& tokens, int remaining, std::vector<int32_t>& to) const {
    const int count = static_cast<int>(tokens.size());
    const uint64_t met = status(state, tokens, {}).met;
    to.clear();
    for (int at = state.position; at <= count; ++at) {
        for (size_t p = 0; p < phrases_.size(); ++p) {
            if ((at < count ? state.met : met) >> p & 1) continue;
            for (const auto& [wanted, only_first] : phrases_[p].alternatives) {
                const int length = static_cast<int>(wanted.size()), same = count - at;
                if ((only_first && at > 0) || same >= length || length - same > remaining || !std::equal(wanted.begin(), wanted.begin() + same, tokens.begin() + at)) continue;
                if (at == 0 || !is_inside_word(tokens[at - 1], wanted[0])) to.push_back(wanted[same]);
            }
        }
    }
    std::sort(to.begin(), to.end());
    to.erase(std::unique(to.begin(), to.end()), to.end());
}

} // namespace heedful
