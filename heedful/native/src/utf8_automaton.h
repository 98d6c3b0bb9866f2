// A finite automaton over byte tokens, which must form valid UTF-8 (RFC 3629) without control characters other than tab
// and line break, U+FFFD and the noncharacters next to it. heedful/decoding/utf8_automaton.py implements the same one.
#pragma once

#include <cstdint>
#include <vector>

namespace heedful {

class Utf8Automaton {
  public:
    static constexpr int BYTES = 256, STATES = 11, COMPLETE = 0;

    // `byte_ids`: the token of each byte, or nullptr if the vocabulary has none. `forbidden`: tokens that are never allowed.
    void set(const int32_t* byte_ids, int32_t vocab_size, const int32_t* forbidden, int32_t num_forbidden);
    // The state after a token. An invalid byte, which a forced prefix may contain, restarts from COMPLETE.
    int next(int state, int32_t token) const;
    // Forbidden tokens in state COMPLETE, ascending.
    const std::vector<int32_t>& forbidden() const { return forbidden_; }
    // The only allowed tokens inside a character, ascending; nullptr in state COMPLETE.
    const std::vector<int32_t>* only(int state) const { return state == COMPLETE ? nullptr : &only_[state]; }
    // Ban the first bytes of characters that need more than `remaining` tokens after the first.
    void ban_unfitting(int remaining, std::vector<int32_t>& banned) const;
    const std::vector<int32_t>& tokens() const { return tokens_; }

  private:
    std::vector<int32_t> tokens_, forbidden_, only_[STATES];
    std::vector<int16_t> byte_of_; // the byte of each token, or -1
};

} // namespace heedful
