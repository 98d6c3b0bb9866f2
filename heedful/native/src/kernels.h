// The kernel interface, implemented once for each instruction set. All implementations give the same bits.
#pragma once

#include <cstdint>

namespace heedful {

constexpr int TILE = 32;      // outputs of a linear layer that are packed and computed together
constexpr int MAX_ROWS = 32; // maximum number of rows multiplied by a tile at once; row buffers are padded to a multiple of this
constexpr int STEP = 16;      // the inputs of packed weights are padded to a multiple of this
constexpr int SPAN = 64;      // outputs computed together in a product over nonzero inputs
constexpr int MAX_SPANS = 4;  // spans per call
constexpr int MAX_SPARSE_ROWS = 4; // rows in a product over nonzero inputs

enum Activation : int { NO_ACTIVATION = 0, RELU = 1, GELU = 2, SWIGLU = 3 };

// Weights of one linear layer, packed: int8 as [tile][inputs / 4][32 outputs][4 inputs], or float as [tile][input][32].
struct Linear {
    int inputs = 0, outputs = 0;
    int padded_inputs = 0, num_tiles = 0;
    const int8_t* weights = nullptr;
    const float* scales = nullptr;    // of each output
    const int32_t* sums = nullptr;    // of each output's weights
    const float* floats = nullptr;    // instead of the three above
    const float* bias = nullptr;
    const int8_t* input_major = nullptr; // a copy of the weights as [input][span][64 outputs], or null
    int num_spans = 0;
};

// A linear layer quantized to two bits per weight: code c, from 0 to 3, stands for c - 1.5 steps. Codes are laid out like
// the weights, four groups of inputs per byte, the first group in the lowest bits: [tile][inputs / 16][32 outputs][4 inputs].
struct Sketch {
    const uint8_t* codes = nullptr;
    const int32_t* sums = nullptr;     // of each output's codes
    const float* half_steps = nullptr; // of each output, multiplied by the scale of its weights
};

// The input rows of a linear layer: float32, or uint8 with a scale and a zero point per row.
struct Rows {
    const float* values = nullptr;
    long value_stride = 0;
    uint8_t* bytes = nullptr;
    long byte_stride = 0;
    float* scales = nullptr;
    int32_t* zeros = nullptr;
};

// The inputs that are nonzero in at least one row; the weights of all other inputs need not be read.
struct NonzeroInputs {
    static constexpr int AHEAD = 16; // extra places past the end, used only for prefetching
    int rows = 0;
    int count = 0; // a multiple of four, padded with zero bytes
    int32_t* indices = nullptr;
    uint8_t* bytes = nullptr; // of each row
    long stride = 0;          // from the bytes of one row to those of the next
};

struct Block { // of the output matrix: rows [first_row, end_row) and tiles [first_tile, end_tile)
    long first_row, end_row;
    int first_tile, end_tile;
};

struct Norm {
    const float* weight = nullptr;
    const float* bias = nullptr; // may be null
    float epsilon = 0;
    bool only_scale = false; // RMSNorm
};

constexpr int MAX_QUERIES = 4; // queries that attend to the same keys in one call

// The keys and values of an attention call: key t is at keys + offsets[t], its value at keys + offsets[t] + value_shift.
struct AttentionArguments {
    const void* keys; // float32, or bfloat16 if `is_bfloat16`
    bool is_bfloat16;
    const long* offsets;
    int count;
    long value_shift;
    int num_heads, head_dim;
    float scale;
    long score_stride; // distance between the scores of consecutive heads, at least the count rounded up to a multiple of LANES
};

struct Candidate {
    float value;
    int32_t token;
};

struct Kernels {
    const char* name;
    int max_speculative_rows; // maximum number of rows for speculative decoding, where memory bandwidth is the limit
    // sums[row][output] = Σ bytes[row][i] · weights[output][i] over one tile, exact. `fresh`: the weights are not in the cache.
    void (*dot)(const uint8_t* bytes, long stride, int rows, const int8_t* weights, int groups, bool fresh,
                int32_t* sums);
    // Tile t of the output is written at to + (t - first_tile) · 32, row r at row r - first_row.
    void (*multiply)(const Linear&, const Rows&, Block, float* to, long stride, int activation);
    // Find the nonzero inputs. `count` is a multiple of STEP; `to` must have capacity for count + AHEAD + 4 inputs.
    void (*find_nonzero_inputs)(const uint8_t* bytes, long stride, int count, NonzeroInputs& to);
    // sums[row][output] = Σ bytes[row][i] · weights[indices[i]][output] over up to MAX_SPANS spans, exact.
    void (*dot_nonzero)(const NonzeroInputs&, const int8_t* weights, long stride, int spans, int32_t* sums);
    // Spans [first_span, end_span) of the product of all rows over their nonzero inputs.
    void (*multiply_nonzero)(const Linear&, const Rows&, const NonzeroInputs&, int first_span, int end_span, float* to, long to_stride);
    // Quantize a tile of weights to 2-bit codes; returns the codes, their sums, and half a step in units of the weights.
    void (*sketch_tile)(const int8_t* weights, int groups, uint8_t* codes, int32_t* sums, float* half_steps);
    // Approximate outputs of one row for tiles [first_tile, end_tile), computed from the sketch.
    void (*multiply_sketch)(const Linear&, const Sketch&, const Rows&, long row, int first_tile, int end_tile, float* to);
    void (*quantize)(const float* from, int count, int padded, uint8_t* bytes, float* scale, int32_t* zero);
    // `statistics`: where to store the mean and the standard deviation, or null.
    void (*normalize)(const float* from, int count, const Norm&, float* to, float* statistics);
    void (*add)(float* to, const float* from, int count);
    void (*embed)(const float* row, float scale, const float* position, int count, float* to);
    void (*rotate)(float* heads, int num_heads, int head_dim, const float* turns);
    void (*gate)(const float* inner, const float* gate, int count, float* to);
    void (*to_bfloat16)(const float* from, int count, uint16_t* to);
    // Attention of `count` queries over the same keys; `scores` holds MAX_QUERIES · num_heads rows.
    void (*attend)(const float* queries, long query_stride, int count, const AttentionArguments&, float* scores, float* to, long to_stride);
    // The largest of some logits, and Σ exp(logit - largest).
    void (*scan)(const float* logits, int count, float* largest, float* sum);
    // Update the best `keep` candidates, best first; ties go to the lowest token.
    void (*choose)(const float* logits, int count, int32_t first_token, Candidate* best, int keep);
    // For traces: one tile of the product of float32 rows with any weights (`scratch` holds a tile of floats), an activation
    // alone, and the steps of `attend` for one query over float32 keys and values, whose scores have a row per head.
    void (*multiply_float_rows)(const Linear&, const float* values, long value_stride, long num_rows, int tile, float* scratch, float* to, long stride);
    void (*activate)(float* values, int count, int activation);
    void (*attention_scores)(const float* query, const AttentionArguments&, float* scores);
    void (*attention_softmax)(float* scores, int num_heads, long stride, int count);
    void (*attention_values)(float* weights, const AttentionArguments&, float* to);
};

#if defined(__wasm__)
extern const Kernels WASM;
#else
extern const Kernels PORTABLE;
#endif
#if defined(__x86_64__)
extern const long FEW_ROWS_PREFETCH; // prefetch distance in bytes for products of few rows
extern const Kernels AVX2, AVX_VNNI, AVX512, AMX;
#endif

// The kernels of this name, or nullptr if this processor cannot run them; without a name, the fastest.
const Kernels* find_kernels(const char* name);

} // namespace heedful
