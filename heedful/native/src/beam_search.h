// Beam search with the rules of heedful/decoding/search.py; a beam of one is greedy search.
#pragma once

#include <memory>

#include "utf8_automaton.h"
#include "decoder.h"
#include "required_phrases.h"
#include "speculative.h"
#include "c_api.h"

namespace heedful {

using BeamTree = std::vector<HeedfulTreeNode>;

class Search {
  public:
    Search(const Model& model, const Kernels& kernels, ThreadPool& pool)
        : model_(model), encoder_(model, kernels, pool), decoder_(model, kernels, pool), memory_(model, kernels), output_layer_(model, kernels, pool),
          speculator_(model, kernels, pool) {}
    void use(std::shared_ptr<const Shortlist> shortlist) { shortlist_ = std::move(shortlist); }
    std::shared_ptr<const Shortlist> shortlist() const { return shortlist_; }
    SpeculationCounts speculation_counts() const { return speculator_.counts(); }
    // With `tree`, which needs a single sentence, the search also records its continuations.
    void run(const HeedfulSettings& settings, const HeedfulSentences& sentences, HeedfulResults& results, BeamTree* tree = nullptr);
    void align(const HeedfulPairs& pairs, AlignmentHead alignment_head, float* to);
    void logits(const int32_t* source, long source_length, const int32_t* target, long target_length, float* to);

  private:
    struct Hypothesis {
        float score = 0; // the log-probability so far; while finished, after the length penalty
        int state = Utf8Automaton::COMPLETE; // after its last token
        int node = -1; // of its last token in the tree
        std::vector<int32_t> tokens;
        std::vector<float> log_probs;
        std::vector<long> offsets; // cache offsets: one for each token, and one for the current step
        std::vector<float> masses; // how much each token attends to sources of phrases, where known
        PhraseState phrases;
        PhraseStatus status; // its cost lowers the rank of the hypothesis
    };
    struct Sentence {
        int max_length = 0;
        std::vector<Hypothesis> live, finished;
        std::vector<int32_t> prefix;
        std::vector<int32_t> forbidden; // forbidden tokens, ascending; empty: only those of the settings
        bool is_done = false;
        std::unique_ptr<RequiredPhrases> phrases; // null: none
        int beam_size = 0, num_banks = 1; // more hypotheses than in the settings, if there are phrases
        long first_slot = 0;
        Hypothesis verified; // the live hypothesis without its speculative tokens
        bool is_speculative = false;
    };
    struct Continuation {
        float score, log_prob;
        int32_t token;
        int parent;
        int node = -1; // in the tree
        PhraseStatus status;
        float rank = 0; // the score less the cost of phrases
        bool is_kept = false;
    };

    void check(const HeedfulSettings& settings, const HeedfulSentences& sentences) const;
    void check_tokens(const int32_t* tokens, long count, int32_t vocab_size) const;
    void check_phrases(const HeedfulSettings& settings, const HeedfulSentences& given) const;
    void check_pair(const int32_t* source, long source_length, const int32_t* target, long target_length) const;
    void start_search(const HeedfulSentences& given);
    void set_phrases(const HeedfulSentences& given);
    void set_candidates(const HeedfulSentences& given);
    void prepare_step();
    void read_attention();
    void take_step(HeedfulResults& results);
    bool can_speculate() const;
    void speculate(HeedfulResults& results);
    void verify_speculation(HeedfulResults& results);
    const std::vector<NextTokenScores>& score_tokens(const Rows& rows, const std::vector<TokenConstraint>& constraints);
    void advance(Sentence& sentence, const NextTokenScores* scores);
    void extend(Sentence& sentence);
    void collect_continuations(const Sentence& sentence, const NextTokenScores* scores);
    void add_required(const Sentence& sentence, const NextTokenScores& answer, int parent, size_t first);
    void set_statuses(const Sentence& sentence);
    void keep_from_banks(const Sentence& sentence);
    void collect_finished(Sentence& sentence);
    void record_continuations(const Sentence& sentence);
    bool should_stop(const Sentence& sentence) const;
    int32_t forced(const Sentence& sentence) const;
    TokenConstraint constraint(const Sentence& sentence, int index, const Hypothesis& hypothesis) const;
    const std::vector<int32_t>& forbidden(const Sentence& sentence) const {
        return sentence.forbidden.empty() ? utf8_.forbidden() : sentence.forbidden;
    }
    int num_candidates(const Sentence& sentence) const { return sentence.beam_size == 1 ? 1 : 2 * sentence.beam_size; }
    // Greedy search has one candidate; its tree shows two.
    int num_recorded(const Sentence& sentence) const { return tree_ ? 2 * sentence.beam_size : num_candidates(sentence); }
    // Cache offset of the keys and values of a hypothesis at a position.
    long offset(const Sentence& sentence, size_t hypothesis, int position) const {
        return decoder_.offset(sentence.first_slot + static_cast<long>(hypothesis), position);
    }
    // Number of tokens of each live hypothesis.
    static int step(const Sentence& sentence) { return static_cast<int>(sentence.live[0].tokens.size()); }
    void ban_repeats(const Hypothesis& hypothesis, std::vector<int32_t>& banned) const;
    double penalty(double length) const;
    void write(const Sentence& sentence, int index, HeedfulResults& results) const;

    const Model& model_;
    std::shared_ptr<const Shortlist> shortlist_;
    Encoder encoder_;
    Decoder decoder_;
    Memory memory_;
    OutputLayer output_layer_;
    Speculator speculator_;
    Utf8Automaton utf8_;
    HeedfulSettings settings_{};
    std::vector<Sentence> sentences_;
    std::vector<DecoderInput> inputs_;
    std::vector<TokenConstraint> constraints_;
    std::vector<Continuation> continuations_;
    std::vector<Hypothesis> next_;
    std::vector<int32_t> longer_;
    std::vector<float> attention_; // of each decoder input over the source, for sentences with phrases
    long attention_stride_ = 0;
    int attention_offset_ = 0;
    std::vector<std::vector<size_t>> banks_;
    bool has_phrases_ = false;
    int num_kept_ = 0; // tokens that the output layer returns for each row
    BeamTree* tree_ = nullptr; // if null, nothing is recorded
};

} // namespace heedful
