/* The C interface. Strings end in zero; functions that can fail return 0 and write a message, or 1. */
#pragma once

#include <stdint.h>

#if defined(__GNUC__)
#define HEEDFUL_API extern "C" __attribute__((visibility("default")))
#endif

struct HeedfulSettings {
    int32_t beam_size, num_best, length_penalty, min_length, no_repeat_ngram;
    int32_t bos_id, eos_id, num_forbidden;
    double length_penalty_alpha;
    const int32_t* forbidden;
    int32_t shortlist; /* whether to restrict translations to the shortlist's candidates */
    int32_t speculative;  /* whether greedy search of few sentences may decode speculatively: faster, with the same results */
    const int32_t* byte_ids; /* the token of each of the 256 bytes, or null; byte tokens are restricted to valid UTF-8 */
};

/* Phrases that translations must contain: sentence i has the phrases [starts[i], starts[i + 1]), at most 64. Phrase p may be
   written as any of its alternatives [alternative_starts[p], alternative_starts[p + 1]), of which alternative a has the
   tokens [token_starts[a], token_starts[a + 1]). It translates the source tokens [sources[2 * p], sources[2 * p + 1]). */
enum { HEEDFUL_CONTINUES_WORD = 1, HEEDFUL_ENDS_IN_WORD = 2 };
struct HeedfulPhrases {
    const int64_t* starts;
    const int64_t* alternative_starts;
    const int64_t* token_starts;
    const int32_t* tokens;
    const uint8_t* only_first; /* of each alternative: whether it counts only at the beginning of the translation */
    const int32_t* sources;
    const uint8_t* word_flags; /* of each target token: whether it continues a word, and whether it ends inside one; or null */
    int32_t layer, head, offset; /* the attention that shows the source of a token: `offset` steps after it is predicted */
    float placement_weight; /* what a token outside of phrases costs, as log-probability, if it attends to sources of phrases only */
};

/* Sentence i has tokens [starts[i], starts[i + 1]), a prefix likewise, and a maximum length without the end token. */
struct HeedfulSentences {
    int32_t count, unused;
    const int32_t* tokens;
    const int64_t* starts;
    const int32_t* prefix;
    const int64_t* prefix_starts;
    const int32_t* max_lengths;
    const int32_t* forbidden; /* tokens forbidden in sentence i, from forbidden_starts[i], in addition to those of the settings */
    const int64_t* forbidden_starts;
    const struct HeedfulPhrases* phrases; /* or null */
};

/* Hypothesis j of sentence i: lengths[i * num_best + j] tokens (0: no such hypothesis) at
   offsets[i] + j * (max_lengths[i] + 1) of tokens and log_probs. */
struct HeedfulResults {
    const int64_t* offsets;
    int32_t* tokens;
    float* log_probs;
    int32_t* lengths;
    uint64_t* missing;      /* bit p of each hypothesis: phrase p of the sentence is missing; or null, as the costs */
    float* placement_costs; /* of each hypothesis */
};

/* A continuation that a beam search considered. Parents come before their children. */
enum { HEEDFUL_KEPT = 0, HEEDFUL_FINISHED = 1, HEEDFUL_PRUNED = 2 };
struct HeedfulTreeNode {
    int32_t parent; /* the node that it continues, or -1 */
    int32_t step;   /* the number of tokens before it */
    int32_t token;
    int32_t state; /* whether the hypothesis stayed in the beam, was finished by the end token, or was dropped */
    int32_t rank;  /* its place among the best hypotheses, from 0 on, or -1 */
    float log_prob, total; /* of the token, and of all tokens up to it */
    float score; /* if finished: the total divided by the length penalty */
};

/* Sentences with their translations, the start token first: tokens of pair i from starts[i] to before starts[i + 1]. */
struct HeedfulPairs {
    int32_t count, unused;
    const int32_t* source;
    const int64_t* source_starts;
    const int32_t* target;
    const int64_t* target_starts;
};

/* Candidates of source token i: targets [starts[i], starts[i + 1]), and candidates of every sentence. */
struct HeedfulShortlist {
    int64_t num_sources, num_targets, num_always;
    const int64_t* starts;
    const void* targets;
    const int32_t* always;
    int32_t target_size; /* bytes of each target: 2 (unsigned) or 4 */
    int32_t unused;
};

/* Changes to a traced pass. REMOVE: the output of a head or sublayer is zero. UNIFORM: a head attends equally to all visible
   positions. SET_WEIGHT: one attention weight; the other weights of its row are scaled so that the sum stays 1.
   UNSCALED: scores are not divided by the square root of d_k. NO_POSITIONS: a stack gets no positional encoding. */
enum { HEEDFUL_REMOVE = 1, HEEDFUL_UNIFORM = 2, HEEDFUL_SET_WEIGHT = 3, HEEDFUL_UNSCALED = 4, HEEDFUL_NO_POSITIONS = 5 };

/* stack: 0 encoder, 1 decoder; sublayer: 0 self-attention, 1 cross-attention, 2 feed-forward; -1 for all sublayers, layers
   or heads. `query`, `key` and `value` belong to SET_WEIGHT, which needs a sublayer, layer and head. */
struct HeedfulIntervention {
    int32_t kind, stack, sublayer, layer, head, query, key;
    float value;
};

/* `target` begins with the start token; the most probable tokens are appended to it up to the end token or `max_length`
   tokens in all (0: none). `wanted`: patterns of tensor names, separated by line breaks, in which * stands for any text. */
struct HeedfulTraceRequest {
    const int32_t* source;
    int64_t source_length;
    const int32_t* target;
    int64_t target_length, max_length;
    const char* wanted;
    const struct HeedfulIntervention* interventions;
    int32_t num_interventions, unused;
};

struct HeedfulTraceTensor {
    const char* name;
    const float* values; /* row-major */
    int64_t shape[3];
    int32_t num_dimensions, unused;
};

HEEDFUL_API int32_t heedful_interface_version();
/* The name of the kernels that would be used; "" if this processor cannot run the kernels of that name. */
HEEDFUL_API const char* heedful_kernels(const char* name);
HEEDFUL_API void* heedful_open(const char* path, int32_t num_threads, const char* kernels, char* message, int64_t message_size);
/* The same for the contents of a weight file, which are copied. */
HEEDFUL_API void* heedful_open_memory(const unsigned char* contents, int64_t size, int32_t num_threads, const char* kernels, char* message,
                                      int64_t message_size);
/* Open an engine that shares the weights of another; they may be closed in any order. */
HEEDFUL_API void* heedful_open_shared(void* engine, int32_t num_threads, char* message, int64_t message_size);
HEEDFUL_API void heedful_close(void* engine);
/* Set an engine's shortlist; engines opened from it afterwards share it. */
HEEDFUL_API int32_t heedful_shortlist(void* engine, const HeedfulShortlist*, char* message, int64_t message_size);
HEEDFUL_API int32_t heedful_translate(void* engine, const HeedfulSettings*, const HeedfulSentences*, HeedfulResults*,
                                      char* message, int64_t message_size);
/* The same for one sentence, with the tree of the search: the best 2 * beam_size continuations of each step. */
HEEDFUL_API void* heedful_translate_tree(void* engine, const HeedfulSettings*, const HeedfulSentences*, HeedfulResults*,
                                         char* message, int64_t message_size);
/* The number of nodes, which the tree owns. */
HEEDFUL_API int64_t heedful_tree_nodes(const void* tree, const HeedfulTreeNode** nodes);
HEEDFUL_API void heedful_tree_free(void* tree);
/* Attention weights of each target token over the source tokens, for one head of a decoder layer or the mean over its
   heads (-1). Pairs are stored one after another, one row per target token. */
HEEDFUL_API int32_t heedful_align(void* engine, const HeedfulPairs*, int32_t layer, int32_t head, float* to, char* message,
                                  int64_t message_size);
/* Logits after each token of `target` (the start token first): to[t * vocabulary + token]. */
HEEDFUL_API int32_t heedful_logits(void* engine, const int32_t* source, int64_t source_length, const int32_t* target,
                                   int64_t target_length, float* to, char* message, int64_t message_size);
/* Run a traced pass in float32; the search settings' end token, forbidden tokens and byte tokens apply. The trace owns its
   tensors; heedful_trace_target returns the number of target tokens. */
HEEDFUL_API void* heedful_trace(void* engine, const HeedfulSettings*, const HeedfulTraceRequest*, char* message, int64_t message_size);
HEEDFUL_API int64_t heedful_trace_target(const void* trace, const int32_t** tokens);
HEEDFUL_API int64_t heedful_trace_count(const void* trace);
HEEDFUL_API void heedful_trace_tensor(const void* trace, int64_t index, HeedfulTraceTensor* to);
HEEDFUL_API void heedful_trace_free(void* trace);
/* Numbers of speculative tokens that were accepted and rejected since the engine was opened. */
HEEDFUL_API void heedful_speculation_counts(void* engine, int64_t* accepted, int64_t* rejected);
/* sums[row * 32 + output] of one packed tile, for comparing kernels. */
HEEDFUL_API int32_t heedful_dot(const char* kernels, const uint8_t* bytes, int64_t stride, int32_t rows,
                                const int8_t* weights, int32_t groups, int32_t* sums);
/* sums[row][output] of up to four rows, skipping zero inputs; weights[input][output] in spans of 64 outputs, up to four
   spans. */
HEEDFUL_API int32_t heedful_dot_nonzero(const char* kernels, const uint8_t* bytes, int32_t rows, int32_t inputs,
                                       const int8_t* weights, int32_t spans, int32_t* sums);
/* The 32 outputs of one packed tile for one row, computed from its sketch; 0 if the kernels do not support sketches. */
HEEDFUL_API int32_t heedful_multiply_sketch(const char* kernels, const uint8_t* bytes, int32_t zero, const int8_t* weights,
                                   int32_t groups, float* to);

#if defined(__wasm__)
/* A product of one tile, as `dot` in kernels.h: web/engine/relaxed_dot.cpp, if the browser supports it. */
typedef void (*HeedfulDot)(const uint8_t* bytes, long stride, int rows, const int8_t* weights, int groups, int32_t* sums);
HEEDFUL_API void heedful_use_dot(HeedfulDot dot);
#if defined(__wasm_atomics__)
/* The threads of an engine: workers with the same memory call `help`, which does not return. */
HEEDFUL_API void* heedful_pool(void* engine);
HEEDFUL_API void heedful_help(void* pool, int32_t thread);
HEEDFUL_API void heedful_help_failed(void* pool);
#endif
#endif

/* Conversion of weights. Matrices are row-major, one row per output; the caller of a `pack` function fills `to` with zeros. */
/* Numbers of the type "F16", "BF16" or "F64" as float32; 0 for other types. */
HEEDFUL_API int32_t heedful_widen(const char* type, const void* from, int64_t count, float* to);
HEEDFUL_API int32_t heedful_all_finite(const float* numbers, int64_t count);
/* scale = max |w| / 127 of a row, value = round(w / scale). */
HEEDFUL_API void heedful_quantize_rows(const float* weight, int64_t rows, int64_t columns, int8_t* values, float* scales);
HEEDFUL_API void heedful_dequantize_rows(const int8_t* values, const float* scales, int64_t rows, int64_t columns, float* to);
/* Pack into tiles of 32 outputs: [tile][inputs / 4][32 outputs][4 inputs], and the sum of each row. */
HEEDFUL_API void heedful_pack_int8(const int8_t* values, int64_t rows, int64_t columns, int64_t padded_columns, int8_t* to,
                                   int32_t* sums);
/* [tile][inputs][32 outputs]. */
HEEDFUL_API void heedful_pack_float32(const float* weight, int64_t rows, int64_t columns, int64_t padded_columns, float* to);
/* Add 64-bit words to `sum`, and each word times (1 + its index) to `weighted_sum`; the first word has index `first`. */
HEEDFUL_API void heedful_checksums(const uint8_t* bytes, int64_t num_words, int64_t first, uint64_t* sum,
                                   uint64_t* weighted_sum);
