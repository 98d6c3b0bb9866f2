// Phrases that a translation must contain, each as one of several token sequences, in any order.
//
// The tokens of a translation are searched for phrases from the left: at each position the longest alternative of a phrase
// that is still missing counts, and the search continues behind it. So phrases do not overlap, and each counts once. An
// alternative must not begin or end inside a longer word.
//
// An unusual phrase is improbable everywhere, so the model would rather translate its source as usual and add the phrase at
// the end. Therefore tokens outside of phrases lower the rank of a hypothesis by how much they attend to sources of phrases.
#pragma once

#include <cstdint>
#include <vector>

#include "c_api.h"

namespace heedful {

// Up to where a hypothesis was searched, whatever follows, and what was found.
struct PhraseState {
    int position = 0;
    uint64_t met = 0;
    float cost = 0;
    int progress = 0;
};

// What a hypothesis contains if it ends here. `progress` counts tokens of phrases, met or begun.
struct PhraseStatus {
    uint64_t met = 0;
    float cost = 0;
    int progress = 0;
};

class RequiredPhrases {
  public:
    static constexpr int MAX_PHRASES = 64;

    // The phrases of one sentence.
    RequiredPhrases(const HeedfulPhrases& given, int sentence);
    int size() const { return static_cast<int>(phrases_.size()); }
    bool needs_attention() const { return weight_ > 0; }
    // The number of tokens of all phrases, each in its shortest form.
    int num_tokens() const { return num_tokens_; }
    bool is_complete(uint64_t met) const { return met == all_; }
    uint64_t missing(uint64_t met) const { return all_ & ~met; }
    const std::vector<int32_t>& tokens() const { return tokens_; }

    // How much of a token's attention weights is on the sources of phrases.
    float mass(const float* weights) const;
    // `masses`: of the tokens for which they are known.
    PhraseStatus status(const PhraseState& state, const std::vector<int32_t>& tokens, const std::vector<float>& masses) const;
    // Search the tokens as far as the result does not depend on later ones.
    void settle(PhraseState& state, const std::vector<int32_t>& tokens, const std::vector<float>& masses) const;
    // The tokens that begin a missing phrase or continue one; `remaining`: the number of tokens that may still follow.
    void next_tokens(const PhraseState& state, const std::vector<int32_t>& tokens, int remaining, std::vector<int32_t>& to) const;

  private:
    struct Alternative {
        std::vector<int32_t> tokens;
        bool only_first; // at the beginning of the translation
    };
    struct Phrase {
        std::vector<Alternative> alternatives;
        int first_source, end_source; // an empty span: unknown
        int shortest;
    };
    struct Match {
        int phrase = -1, length = 0;
    };
    // The longest phrase at a position, and the longest one there that the tokens end in the middle of.
    struct Matches {
        Match whole, begun;
        bool is_open = false; // later tokens decide
    };
    Matches find(uint64_t met, const std::vector<int32_t>& tokens, int at) const;
    bool is_inside_word(int32_t before, int32_t after) const;

    std::vector<Phrase> phrases_;
    std::vector<int32_t> tokens_;
    const uint8_t* word_flags_;
    float weight_;
    int num_tokens_ = 0;
    uint64_t all_ = 0;
};

} // namespace heedful
