// A finite automaton over byte tokens, which must form valid UTF-8 (RFC 3629) without control characters other than tab
// and line break, U+FFFD and the noncharacters next to it. heedful/decoding/utf8_automaton.py implements the same one.
#pragma once

#include <cstdint>
#include <vector>

namespace heedful {

class Utf8Automaton {
  public:
    static constexpr int BYTES = 256, STATES = 11, COMPLETE = 0;

    // `byte_ids`: the token of each byte, or nullptr if the vocabulary has none. `forbidden`: tokens never to be chosen.
    void set(const int32_t* byte_ids, int32_t vocab_size, const int32_t* forbidden, int32_t num_forbidden);
    // The state after a token. One that may not come, as in a forced prefix, starts from the beginning.
    int next(int state, int32_t token) const;
    // Between characters: the tokens that may not come, in rising order.
    const std::vector<int32_t>& forbidden() const { return forbidden_; }
    // Inside a character: the only tokens that may come, in rising order; nullptr between characters.
    const std::vector<int32_t>* only(int state) const { return state == COMPLETE ? nullptr : &only_[state]; }
    // Between characters, with room for so many more tokens after the next: the first bytes of longer characters.
    void ban_unfitting(int room, std::vector<int32_t>& banned) const;
    const std::vector<int32_t>& tokens() const { return tokens_; }

  private:
    std::vector<int32_t> tokens_, forbidden_, only_[STATES];
    std::vector<int16_t> byte_of_; // of each token; -1: it is no byte
};

} // namespace heedful
