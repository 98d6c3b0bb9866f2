#include "beam_search.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace heedful {
namespace {

constexpr float NEGATIVE_INFINITY = -std::numeric_limits<float>::infinity();
constexpr int32_t FREE = -1; // no token is forced
constexpr int MAX_BANKS = 48, MAX_MORE = 100; // of a sentence with phrases: its banks, and the hypotheses added to its beam

int count_bits(uint64_t bits) { return __builtin_popcountll(bits); }

} // namespace

void Search::run(const HeedfulSettings& settings, const HeedfulSentences& given, HeedfulResults& results, BeamTree* tree) {
    check(settings, given);
    if (tree && (given.count != 1 || given.phrases)) fail("the tree of a search needs exactly one sentence, without required phrases");
    if (given.count == 0) return;
    settings_ = settings;
    tree_ = tree;
    std::vector<long> starts(given.starts, given.starts + given.count + 1);
    encoder_.read(given.tokens, starts.data(), given.count, memory_);
    start_search(given);
    while (true) {
        prepare_step();
        if (inputs_.empty()) return;
        decoder_.step(inputs_);
        if (has_phrases_) read_attention();
        if (can_speculate()) speculate(results);
        else take_step(results);
    }
}

const std::vector<NextTokenScores>& Search::score_tokens(const Rows& rows, const std::vector<TokenConstraint>& constraints) {
    const std::vector<NextTokenScores>& found = output_layer_.score(rows, constraints, num_kept_);
    for (const NextTokenScores& answer : found)
        if (!std::isfinite(answer.log_sum)) fail("the model's log-probabilities are not numbers (NaN): its weights are damaged");
    return found;
}

// Advance every unfinished sentence by one step.
void Search::take_step(HeedfulResults& results) {
    const NextTokenScores* next = score_tokens(decoder_.rows(), constraints_).data();
    for (size_t i = 0; i < sentences_.size(); ++i) {
        Sentence& sentence = sentences_[i];
        if (sentence.is_done) continue;
        const size_t count = sentence.live.size();
        advance(sentence, next);
        next += count;
        if (sentence.is_done) write(sentence, static_cast<int>(i), results);
    }
}

bool Search::can_speculate() const {
    return settings_.speculative && !tree_ && !has_phrases_ && settings_.beam_size == 1 && !settings_.shortlist && model_.shape.int8 && speculator_.is_worthwhile(inputs_.size());
}

// Append the proposed tokens. Verify them when the buffer is full or a token ends its sentence.
void Search::speculate(HeedfulResults& results) {
    const std::vector<int32_t>& proposed = speculator_.propose(decoder_.rows(), constraints_);
    bool ends = false;
    for (size_t row = 0; row < inputs_.size(); ++row) {
        Sentence& sentence = sentences_[inputs_[row].sentence];
        if (!sentence.is_speculative) sentence.verified = sentence.live[0];
        sentence.is_speculative = true;
        const int32_t must = forced(sentence), token = must == FREE ? proposed[row] : must;
        speculator_.add(decoder_.rows(), static_cast<long>(row), std::move(constraints_[row]), token);
        sentence.live[0].tokens.push_back(token);
        sentence.live[0].state = utf8_.next(sentence.live[0].state, token);
        ends = ends || token == settings_.eos_id || token < 0;
    }
    if (ends || speculator_.is_full()) verify_speculation(results);
}

// Repeat the speculative steps with the full output layer, up to the first rejected token of each sentence.
void Search::verify_speculation(HeedfulResults& results) {
    const std::vector<NextTokenScores>& found = score_tokens(speculator_.rows(), speculator_.constraints());
    for (Sentence& sentence : sentences_)
        if (sentence.is_speculative) std::swap(sentence.live[0], sentence.verified);
    int accepted = 0, rejected = 0;
    for (size_t row = 0; row < found.size(); ++row) {
        const int index = speculator_.constraints()[row].sentence;
        Sentence& sentence = sentences_[index];
        if (!sentence.is_speculative) continue; // an earlier token was rejected, or the sentence is finished
        Hypothesis& verified = sentence.live[0];
        if (verified.offsets.size() == verified.tokens.size()) verified.offsets.push_back(offset(sentence, 0, step(sentence)));
        advance(sentence, &found[row]);
        const int32_t token = sentence.is_done ? settings_.eos_id : sentence.live[0].tokens.back();
        const bool is_accepted = token == speculator_.tokens()[row];
        ++(is_accepted ? accepted : rejected);
        sentence.is_speculative = is_accepted && !sentence.is_done;
        if (sentence.is_done) write(sentence, index, results);
    }
    for (Sentence& sentence : sentences_) sentence.is_speculative = false;
    speculator_.close(accepted, rejected);
}

void Search::check_tokens(const int32_t* tokens, long count, int32_t vocab_size) const {
    for (long i = 0; i < count; ++i)
        if (tokens[i] < 0 || tokens[i] >= vocab_size)
            fail("token " + std::to_string(tokens[i]) + " is not in the vocabulary of " + std::to_string(vocab_size));
}

void Search::check(const HeedfulSettings& settings, const HeedfulSentences& given) const {
    const Shape& shape = model_.shape;
    if (settings.beam_size < 1 || settings.beam_size > 1000 || settings.num_best < 1 || settings.num_best > settings.beam_size)
        fail("beam_size must be from 1 to 1000, and num_best at most as large");
    if (given.count < 0 || settings.num_forbidden < 0) fail("a count is negative");
    if (settings.shortlist && !shortlist_) fail("there is no shortlist to choose from");
    const int32_t special[] = {settings.bos_id, settings.eos_id};
    check_tokens(special, 2, shape.target_vocab_size);
    check_tokens(settings.forbidden, settings.num_forbidden, shape.target_vocab_size);
    if (settings.byte_ids) check_tokens(settings.byte_ids, Utf8Automaton::BYTES, shape.target_vocab_size);
    check_tokens(given.forbidden, given.count ? given.forbidden_starts[given.count] : 0, shape.target_vocab_size);
    for (int i = 0; i < given.count; ++i) {
        const int64_t length = given.starts[i + 1] - given.starts[i], beginning = given.prefix_starts[i + 1] - given.prefix_starts[i];
        const int64_t limit = given.max_lengths[i];
        if (length < 1 || length > shape.max_length)
            fail("sentence " + std::to_string(i + 1) + " has " + std::to_string(length) + " tokens, and the model takes 1 to " +
                        std::to_string(shape.max_length));
        if (limit < 0 || limit > shape.max_length - 1 || beginning < 0 || beginning > limit)
            fail("sentence " + std::to_string(i + 1) + " may have from its prefix to " +
                        std::to_string(shape.max_length - 1) + " target tokens, not " + std::to_string(limit));
        check_tokens(given.tokens + given.starts[i], length, shape.source_vocab_size);
        check_tokens(given.prefix + given.prefix_starts[i], beginning, shape.target_vocab_size);
    }
    if (given.phrases) check_phrases(settings, given);
}

void Search::check_phrases(const HeedfulSettings& settings, const HeedfulSentences& given) const {
    const HeedfulPhrases& phrases = *given.phrases;
    const bool has_head = phrases.layer >= 0 && phrases.layer < static_cast<int>(model_.decoder.size()) && phrases.head >= -1 && phrases.head < model_.shape.num_heads;
    if (!has_head || phrases.offset < 0 || phrases.offset > 1) fail("the model has no such layer or head to place phrases by");
    if (!(phrases.placement_weight >= 0.0f && phrases.placement_weight < 1e6f)) fail("the weight of the placement must be from 0 to 1000000");
    for (int i = 0; i < given.count; ++i) {
        const int64_t length = given.starts[i + 1] - given.starts[i], first = phrases.starts[i], end = phrases.starts[i + 1];
        if (end < first || end - first > RequiredPhrases::MAX_PHRASES) fail("a sentence may have at most 64 phrases");
        for (int64_t p = first; p < end; ++p) {
            if (phrases.sources[2 * p] < 0 || phrases.sources[2 * p] > phrases.sources[2 * p + 1] || phrases.sources[2 * p + 1] > length)
                fail("the source of a phrase is not in its sentence");
            if (phrases.alternative_starts[p] >= phrases.alternative_starts[p + 1]) fail("a phrase has no alternative");
            for (int64_t a = phrases.alternative_starts[p]; a < phrases.alternative_starts[p + 1]; ++a) {
                const int32_t* tokens = phrases.tokens + phrases.token_starts[a];
                const int64_t count = phrases.token_starts[a + 1] - phrases.token_starts[a];
                if (count < 1) fail("an alternative of a phrase has no token");
                check_tokens(tokens, count, model_.shape.target_vocab_size);
                for (int64_t t = 0; t < count; ++t)
                    if (tokens[t] == settings.eos_id || std::count(settings.forbidden, settings.forbidden + settings.num_forbidden, tokens[t]))
                        fail("a phrase has the token " + std::to_string(tokens[t]) + ", which no translation may contain");
            }
        }
    }
}

void Search::start_search(const HeedfulSentences& given) {
    long capacity = 1;
    utf8_.set(settings_.byte_ids, model_.shape.target_vocab_size, settings_.forbidden, settings_.num_forbidden);
    sentences_.resize(given.count);
    for (int i = 0; i < given.count; ++i) {
        Sentence& sentence = sentences_[i];
        sentence.max_length = given.max_lengths[i];
        sentence.prefix.assign(given.prefix + given.prefix_starts[i], given.prefix + given.prefix_starts[i + 1]);
        sentence.forbidden.assign(given.forbidden + given.forbidden_starts[i], given.forbidden + given.forbidden_starts[i + 1]);
        if (!sentence.forbidden.empty()) {
            const std::vector<int32_t>& more = utf8_.forbidden();
            sentence.forbidden.insert(sentence.forbidden.end(), more.begin(), more.end());
            std::sort(sentence.forbidden.begin(), sentence.forbidden.end());
        }
        sentence.finished.clear();
        sentence.live.assign(1, Hypothesis());
        sentence.is_done = sentence.is_speculative = false;
        capacity = std::max<long>(capacity, sentence.max_length + 1L);
    }
    set_phrases(given);
    const Sentence& last = sentences_.back();
    decoder_.begin(memory_, last.first_slot + last.beam_size, capacity);
    set_candidates(given);
    speculator_.begin();
}

// A sentence with phrases gets as many hypotheses again for each phrase, and two for each token inside a phrase.
void Search::set_phrases(const HeedfulSentences& given) {
    has_phrases_ = false;
    num_kept_ = 0;
    long slot = 0;
    for (int i = 0; i < given.count; ++i) {
        Sentence& sentence = sentences_[i];
        sentence.phrases = given.phrases ? std::make_unique<RequiredPhrases>(*given.phrases, i) : nullptr;
        if (sentence.phrases && sentence.phrases->size() == 0) sentence.phrases = nullptr;
        has_phrases_ = has_phrases_ || sentence.phrases;
        sentence.num_banks = sentence.phrases ? std::min(sentence.phrases->num_tokens(), MAX_BANKS - 1) + 1 : 1;
        sentence.beam_size = settings_.beam_size;
        if (sentence.phrases) sentence.beam_size += std::min(MAX_MORE, settings_.beam_size * sentence.phrases->size() + 2 * (sentence.phrases->num_tokens() - sentence.phrases->size()));
        sentence.first_slot = slot;
        slot += sentence.beam_size;
        num_kept_ = std::max(num_kept_, num_recorded(sentence));
    }
    if (!has_phrases_) return;
    decoder_.set_alignment_head({given.phrases->layer, given.phrases->head});
    attention_offset_ = given.phrases->offset;
    attention_stride_ = 1;
    for (int i = 0; i < given.count; ++i) attention_stride_ = std::max<long>(attention_stride_, given.starts[i + 1] - given.starts[i]);
    attention_.resize(slot * attention_stride_);
}

// Record how much the tokens of the hypotheses attend to sources of phrases.
void Search::read_attention() {
    size_t row = 0;
    for (Sentence& sentence : sentences_) {
        if (sentence.is_done) continue;
        for (Hypothesis& hypothesis : sentence.live) {
            const float* weights = inputs_[row++].weights;
            if (weights && step(sentence) >= attention_offset_) hypothesis.masses.push_back(sentence.phrases->mass(weights));
        }
    }
}

// With a shortlist, the candidates of each sentence include its prefix, the end token and the byte tokens.
void Search::set_candidates(const HeedfulSentences& given) {
    std::vector<std::vector<int32_t>> lists;
    std::vector<const std::vector<int32_t>*> forbidden;
    for (int i = 0; i < given.count && settings_.shortlist; ++i) {
        std::vector<int32_t> more = sentences_[i].prefix;
        more.push_back(settings_.eos_id);
        if (sentences_[i].phrases) more.insert(more.end(), sentences_[i].phrases->tokens().begin(), sentences_[i].phrases->tokens().end());
        more.insert(more.end(), utf8_.tokens().begin(), utf8_.tokens().end());
        forbidden.push_back(&this->forbidden(sentences_[i]));
        lists.push_back(shortlist_->candidates(given.tokens + given.starts[i], given.starts[i + 1] - given.starts[i], more));
    }
    output_layer_.set_candidates(std::move(lists), forbidden);
}

// Collect the decoder inputs and token constraints of all live hypotheses of unfinished sentences.
void Search::prepare_step() {
    inputs_.clear();
    constraints_.clear();
    for (size_t i = 0; i < sentences_.size(); ++i) {
        Sentence& sentence = sentences_[i];
        if (sentence.is_done) continue;
        const int step = Search::step(sentence);
        for (size_t n = 0; n < sentence.live.size(); ++n) {
            Hypothesis& hypothesis = sentence.live[n];
            hypothesis.offsets.push_back(offset(sentence, n, step));
            const int32_t newest = step == 0 ? settings_.bos_id : hypothesis.tokens.back();
            const bool is_read = sentence.phrases && sentence.phrases->needs_attention();
            float* weights = is_read ? attention_.data() + static_cast<long>(inputs_.size()) * attention_stride_ : nullptr;
            inputs_.push_back({newest, static_cast<int>(i), hypothesis.offsets.data(), step, weights});
            constraints_.push_back(constraint(sentence, static_cast<int>(i), hypothesis));
        }
    }
}

// The tokens that may follow a hypothesis. Inside a UTF-8 character only its continuation bytes are allowed.
TokenConstraint Search::constraint(const Sentence& sentence, int index, const Hypothesis& hypothesis) const {
    const int32_t must = forced(sentence);
    const int step = Search::step(sentence);
    TokenConstraint constraint = {index, must == FREE ? settings_.eos_id : must, &forbidden(sentence), utf8_.only(hypothesis.state), {}, {}};
    if (sentence.phrases && must == FREE) {
        std::vector<int32_t>& required = constraint.required;
        sentence.phrases->next_tokens(hypothesis.phrases, hypothesis.tokens, sentence.max_length - step, required);
        const std::vector<int32_t>& listed = constraint.only ? *constraint.only : utf8_.forbidden();
        const auto is_invalid = [&](int32_t token) { return std::binary_search(listed.begin(), listed.end(), token) == !constraint.only; };
        required.erase(std::remove_if(required.begin(), required.end(), is_invalid), required.end());
        if (!sentence.phrases->is_complete(hypothesis.status.met)) constraint.banned.push_back(settings_.eos_id);
    }
    if (constraint.only) return constraint;
    if (settings_.no_repeat_ngram) ban_repeats(hypothesis, constraint.banned);
    if (step < settings_.min_length) constraint.banned.push_back(settings_.eos_id);
    utf8_.ban_unfitting(sentence.max_length - step - 1, constraint.banned);
    return constraint;
}

int32_t Search::forced(const Sentence& sentence) const {
    const int step = Search::step(sentence);
    if (sentence.max_length <= step) return settings_.eos_id;
    return step < static_cast<int>(sentence.prefix.size()) ? sentence.prefix[step] : FREE;
}

// Ban every token that would repeat an n-gram of the hypothesis.
void Search::ban_repeats(const Hypothesis& hypothesis, std::vector<int32_t>& banned) const {
    const std::vector<int32_t>& tokens = hypothesis.tokens;
    const long context = settings_.no_repeat_ngram - 1L, length = static_cast<long>(tokens.size());
    for (long end = context; end < length; ++end)
        if (std::equal(tokens.end() - context, tokens.end(), tokens.begin() + (end - context))) banned.push_back(tokens[end]);
}

// Advance one sentence by a step, given the scores of its hypotheses.
void Search::advance(Sentence& sentence, const NextTokenScores* scores) {
    collect_continuations(sentence, scores);
    collect_finished(sentence);
    if (sentence.phrases) keep_from_banks(sentence);
    extend(sentence);
    sentence.is_done = should_stop(sentence);
}

// The next live hypotheses.
void Search::extend(Sentence& sentence) {
    next_.resize(std::max<size_t>(next_.size(), sentence.beam_size));
    size_t count = 0;
    for (const Continuation& c : continuations_) {
        if (c.token == settings_.eos_id || count == static_cast<size_t>(sentence.beam_size) || (sentence.phrases && !c.is_kept)) continue;
        Hypothesis& longer = next_[count++];
        const Hypothesis& parent = sentence.live[c.parent];
        longer.tokens.assign(parent.tokens.begin(), parent.tokens.end());
        longer.log_probs.assign(parent.log_probs.begin(), parent.log_probs.end());
        longer.offsets.assign(parent.offsets.begin(), parent.offsets.end());
        longer.tokens.push_back(c.token);
        longer.log_probs.push_back(c.log_prob);
        longer.score = c.score;
        longer.state = utf8_.next(parent.state, c.token);
        longer.node = c.node;
        if (tree_) (*tree_)[c.node].state = HEEDFUL_KEPT;
        if (!sentence.phrases) continue;
        longer.status = c.status;
        longer.phrases = parent.phrases;
        longer.masses.assign(parent.masses.begin(), parent.masses.end());
        sentence.phrases->settle(longer.phrases, longer.tokens, longer.masses);
    }
    sentence.live.resize(count);
    for (size_t n = 0; n < count; ++n) std::swap(sentence.live[n], next_[n]);
}

// The hypotheses of a sentence with phrases compete with those that have as many tokens of phrases; each such bank gets an
// equal share of the beam, and the shares of small banks go to the others (Post and Vilar 2018).
void Search::keep_from_banks(const Sentence& sentence) {
    banks_.resize(std::max<size_t>(banks_.size(), sentence.num_banks));
    for (std::vector<size_t>& bank : banks_) bank.clear();
    const int num_tokens = sentence.phrases->num_tokens(), last = sentence.num_banks - 1;
    for (size_t i = 0; i < continuations_.size(); ++i)
        if (continuations_[i].token != settings_.eos_id) banks_[static_cast<int64_t>(continuations_[i].status.progress) * last / num_tokens].push_back(i);
    size_t longest = 0;
    for (const std::vector<size_t>& bank : banks_) longest = std::max(longest, bank.size());
    int count = 0;
    for (size_t rank = 0; rank < longest; ++rank)
        for (int b = last; b >= 0; --b)
            if (rank < banks_[b].size() && count < sentence.beam_size) continuations_[banks_[b][rank]].is_kept = true, ++count;
}


// Collect the best 2N continuations of a sentence, best first; ties go to the earlier hypothesis, then to the lower token.
void Search::collect_continuations(const Sentence& sentence, const NextTokenScores* scores) {
    const bool must = forced(sentence) != FREE;
    continuations_.clear();
    for (size_t n = 0; n < sentence.live.size(); ++n) {
        const NextTokenScores& answer = scores[n];
        const float before = sentence.live[n].score;
        auto add = [&](int32_t token, float logit) {
            const float log_prob = logit - answer.log_sum;
            continuations_.push_back({before + log_prob, log_prob, token, static_cast<int>(n), -1, {}, before + log_prob, false});
        };
        const size_t first = continuations_.size();
        if (must || answer.best[0].token < 0) { // if no token is allowed, end the sentence
            add(must ? forced(sentence) : settings_.eos_id, answer.wanted);
        } else {
            for (int i = 0; i < num_recorded(sentence) && answer.best[i].token >= 0; ++i) add(answer.best[i].token, answer.best[i].value);
        }
        if (sentence.phrases) add_required(sentence, answer, static_cast<int>(n), first);
    }
    if (sentence.phrases) set_statuses(sentence);
    std::sort(continuations_.begin(), continuations_.end(), [](const Continuation& a, const Continuation& b) {
        if (a.rank != b.rank) return a.rank > b.rank;
        return a.parent != b.parent ? a.parent < b.parent : a.token < b.token;
    });
    if (tree_) record_continuations(sentence);
    if (!sentence.phrases && continuations_.size() > static_cast<size_t>(num_candidates(sentence))) continuations_.resize(num_candidates(sentence));
}

// Add the tokens of phrases that are not among the best; `first`: the first continuation of the hypothesis.
void Search::add_required(const Sentence& sentence, const NextTokenScores& answer, int parent, size_t first) {
    const size_t end = continuations_.size();
    for (const Candidate& required : answer.required) {
        bool is_there = false;
        for (size_t i = first; i < end; ++i) is_there = is_there || continuations_[i].token == required.token;
        const float log_prob = required.value - answer.log_sum, score = sentence.live[parent].score + log_prob;
        if (!is_there) continuations_.push_back({score, log_prob, required.token, parent, -1, {}, score, false});
    }
}

void Search::set_statuses(const Sentence& sentence) {
    for (Continuation& c : continuations_) {
        const Hypothesis& parent = sentence.live[c.parent];
        longer_.assign(parent.tokens.begin(), parent.tokens.end());
        if (c.token != settings_.eos_id) longer_.push_back(c.token);
        c.status = sentence.phrases->status(parent.phrases, longer_, parent.masses);
        c.rank = c.score - c.status.cost;
    }
}

// Add the best 2N continuations to the tree, as pruned; those that the search takes up are marked later.
void Search::record_continuations(const Sentence& sentence) {
    if (continuations_.size() > static_cast<size_t>(num_recorded(sentence))) continuations_.resize(num_recorded(sentence));
    for (Continuation& c : continuations_) {
        c.node = static_cast<int>(tree_->size());
        tree_->push_back({sentence.live[c.parent].node, step(sentence), c.token, HEEDFUL_PRUNED, -1, c.log_prob, c.score, 0.0f});
    }
}

// Move the ended hypotheses among the first N continuations to the finished ones, and keep the best of these.
void Search::collect_finished(Sentence& sentence) {
    const float divisor = static_cast<float>(penalty(step(sentence) + 1.0));
    int rank = 0;
    for (const Continuation& c : continuations_) {
        const bool ends = c.token == settings_.eos_id;
        const bool is_complete = !sentence.phrases || sentence.phrases->is_complete(c.status.met);
        if (is_complete && rank++ >= settings_.beam_size) continue; // an incomplete one ends only if it has to
        if (!ends || !(c.score > NEGATIVE_INFINITY)) continue;
        Hypothesis finished = sentence.live[c.parent];
        finished.tokens.push_back(c.token);
        finished.log_probs.push_back(c.log_prob);
        finished.score = c.rank / divisor;
        finished.status = c.status;
        finished.node = c.node;
        if (tree_) (*tree_)[c.node].state = HEEDFUL_FINISHED, (*tree_)[c.node].score = finished.score;
        sentence.finished.push_back(std::move(finished));
    }
    std::stable_sort(sentence.finished.begin(), sentence.finished.end(),
                     [](const Hypothesis& a, const Hypothesis& b) {
                         const int met = count_bits(a.status.met), other = count_bits(b.status.met);
                         return met != other ? met > other : a.score > b.score;
                     });
    if (sentence.finished.size() > static_cast<size_t>(settings_.num_best)) sentence.finished.resize(settings_.num_best);
}

bool Search::should_stop(const Sentence& sentence) const {
    bool full = sentence.finished.size() == static_cast<size_t>(settings_.num_best);
    if (full && sentence.phrases) full = sentence.phrases->is_complete(sentence.finished.back().status.met);
    if (sentence.live.empty()) return true;
    if (sentence.beam_size == 1) return full;
    const float max_penalty = static_cast<float>(penalty(sentence.max_length + 1.0));
    const float best = sentence.live[0].score - sentence.live[0].status.cost;
    return full && best / max_penalty <= sentence.finished.back().score;
}

double Search::penalty(double length) const {
    if (settings_.length_penalty == 1) return std::pow((length + 5.0) / 6.0, settings_.length_penalty_alpha);
    return settings_.length_penalty == 2 ? std::pow(length, settings_.length_penalty_alpha) : 1.0;
}

void Search::write(const Sentence& sentence, int index, HeedfulResults& results) const {
    for (int j = 0; j < settings_.num_best; ++j) {
        bool exists = j < static_cast<int>(sentence.finished.size());
        if (exists) exists = count_bits(sentence.finished[j].status.met) == count_bits(sentence.finished[0].status.met);
        results.lengths[index * settings_.num_best + j] = exists ? static_cast<int32_t>(sentence.finished[j].tokens.size()) : 0;
        if (!exists) continue;
        if (tree_) (*tree_)[sentence.finished[j].node].rank = j;
        if (results.missing) {
            const PhraseStatus& status = sentence.finished[j].status;
            results.missing[index * settings_.num_best + j] = sentence.phrases ? sentence.phrases->missing(status.met) : 0;
            results.placement_costs[index * settings_.num_best + j] = status.cost;
        }
        const long offset = results.offsets[index] + j * (sentence.max_length + 1L);
        std::copy(sentence.finished[j].tokens.begin(), sentence.finished[j].tokens.end(), results.tokens + offset);
        std::copy(sentence.finished[j].log_probs.begin(), sentence.finished[j].log_probs.end(), results.log_probs + offset);
    }
}

void Search::align(const HeedfulPairs& given, AlignmentHead alignment_head, float* to) {
    if (alignment_head.layer < 0 || alignment_head.layer >= static_cast<int>(model_.decoder.size()) || alignment_head.head < -1 || alignment_head.head >= model_.shape.num_heads)
        fail("the model has no such layer or head to align with");
    decoder_.set_alignment_head(alignment_head);
    std::vector<long> starts(given.source_starts, given.source_starts + given.count + 1);
    std::vector<float*> weights(given.count);
    std::vector<std::vector<long>> offsets(given.count);
    long longest = 1;
    for (int i = 0; i < given.count; ++i) {
        const int64_t length = given.source_starts[i + 1] - given.source_starts[i], steps = given.target_starts[i + 1] - given.target_starts[i];
        check_pair(given.source + given.source_starts[i], length, given.target + given.target_starts[i], steps);
        weights[i] = to;
        to += length * steps;
        longest = std::max<long>(longest, steps);
    }
    if (given.count == 0) return;
    encoder_.read(given.source, starts.data(), given.count, memory_);
    decoder_.begin(memory_, given.count, longest);
    for (long step = 0; step < longest; ++step) {
        inputs_.clear();
        for (int i = 0; i < given.count; ++i) {
            if (step >= given.target_starts[i + 1] - given.target_starts[i]) continue;
            offsets[i].push_back(decoder_.offset(i, step));
            inputs_.push_back({given.target[given.target_starts[i] + step], i, offsets[i].data(), static_cast<int>(step),
                               weights[i] + step * (starts[i + 1] - starts[i])});
        }
        decoder_.step(inputs_);
    }
}

void Search::check_pair(const int32_t* source, long source_length, const int32_t* target, long target_length) const {
    const Shape& shape = model_.shape;
    if (source_length < 1 || source_length > shape.max_length || target_length < 1 || target_length > shape.max_length)
        fail("a sentence has no token, or more than the model takes");
    check_tokens(source, source_length, shape.source_vocab_size);
    check_tokens(target, target_length, shape.target_vocab_size);
}

void Search::logits(const int32_t* source, long source_length, const int32_t* target, long target_length, float* to) {
    check_pair(source, source_length, target, target_length);
    const long starts[] = {0, source_length};
    encoder_.read(source, starts, 1, memory_);
    decoder_.begin(memory_, 1, target_length);
    std::vector<long> offsets;
    for (long t = 0; t < target_length; ++t) {
        offsets.push_back(decoder_.offset(0, t));
        inputs_.assign(1, {target[t], 0, offsets.data(), static_cast<int>(t), nullptr});
        decoder_.step(inputs_);
        output_layer_.logits(decoder_.rows(), 1, to + t * model_.shape.target_vocab_size);
    }
}

} // namespace heedful
