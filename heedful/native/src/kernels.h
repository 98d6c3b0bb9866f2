// The kernel interface, implemented once for each instruction set. All implementations give the same bits.
#pragma once

#include <cstdint>

namespace heedful {

constexpr int TILE = 32;      // outputs of a linear layer that are packed and computed together
constexpr int MAX_ROWS = 32; // rows that meet a tile at once, at most; room for rows is a multiple of this
constexpr int STEP = 16;      // the inputs of packed weights are padded to a multiple of this
constexpr int SPAN = 64;      // outputs that are computed together from chosen inputs
constexpr int MAX_SPANS = 4; // that meet them at once
constexpr int MAX_SPARSE_ROWS = 4; // rows that choose together

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
    const int8_t* input_major = nullptr; // the weights once more, as [input][span][64 outputs]; may be missing
    int num_spans = 0;
};

// A linear layer in two bits a weight: code c, from 0 to 3, stands for c - 1.5 steps. Codes lie as the weights do, those of
// four groups of inputs in each byte, the first group's lowest: [tile][inputs / 16][32 outputs][4 inputs].
struct Sketch {
    const uint8_t* codes = nullptr;
    const int32_t* sums = nullptr;     // of each output's codes
    const float* half_steps = nullptr; // of each output, with the scale of its weights
};

// Rows that a linear layer is given: as numbers, or as bytes with a scale and a zero point for each row.
struct Rows {
    const float* values = nullptr;
    long value_stride = 0;
    uint8_t* bytes = nullptr;
    long byte_stride = 0;
    float* scales = nullptr;
    int32_t* zeros = nullptr;
};

// The inputs whose bytes are not zero in all of a few rows. Of the others the weights need not be read.
struct NonzeroInputs {
    static constexpr int AHEAD = 16; // places behind the last, whose weights are fetched and not used
    int rows = 0;
    int count = 0; // whole fours, filled up with bytes of zero
    int32_t* places = nullptr;
    uint8_t* bytes = nullptr; // of each row
    long stride = 0;          // from the bytes of one row to those of the next
};

struct Block { // of the output matrix: rows and tiles from first to before end
    long first_row, end_row;
    int first_tile, end_tile;
};

struct Norm {
    const float* weight = nullptr;
    const float* bias = nullptr; // may be missing
    float epsilon = 0;
    bool only_scale = false; // RMSNorm
};

constexpr int MAX_QUERIES = 4; // rows whose queries meet the same keys at once

// What a row attends to: key t lies at keys + offsets[t], its value `value_shift` further on.
struct AttentionArguments {
    const void* keys; // float32, or bfloat16 if `halves`
    bool halves;
    const long* offsets;
    int count;
    long value_shift;
    int num_heads, head_dim;
    float scale;
    long room; // between the scores of one head and the next: the count rounded up to whole lanes, or more
};

struct Candidate {
    float value;
    int32_t token;
};

struct Kernels {
    const char* name;
    int max_speculative_rows; // up to so many rows guess tokens: for them reading weights takes longer than computing
    // sums[row][output] = Σ bytes[row][i] · weights[output][i], over one tile, exactly; `fresh` weights must be fetched.
    void (*dot)(const uint8_t* bytes, long stride, int rows, const int8_t* weights, int groups, bool fresh,
                int32_t* sums);
    // Tile t of the output goes to to + (t - first_tile) · 32, and row r to row r - first_row there.
    void (*multiply)(const Linear&, const Rows&, Block, float* to, long stride, int activation);
    // The inputs that are not zero, of `count`, a multiple of STEP; there must be room for all of them and AHEAD + 4 more.
    void (*find_nonzero_inputs)(const uint8_t* bytes, long stride, int count, NonzeroInputs& to);
    // sums[row][output] = Σ bytes[row][i] · weights[places[i]][output], over up to MAX_SPANS spans, exactly.
    void (*dot_nonzero)(const NonzeroInputs&, const int8_t* weights, long stride, int spans, int32_t* sums);
    // The spans from first to before end of the product of all rows, by their chosen inputs.
    void (*multiply_nonzero)(const Linear&, const Rows&, const NonzeroInputs&, int first_span, int end_span, float* to, long to_stride);
    // The codes of a tile of weights, their sums, and half a step in units of the weights.
    void (*sketch_tile)(const int8_t* weights, int groups, uint8_t* codes, int32_t* sums, float* half_steps);
    // The outputs of one row, tiles from first to before end, as the sketch has them.
    void (*multiply_sketch)(const Linear&, const Sketch&, const Rows&, long row, int first_tile, int end_tile, float* to);
    void (*quantize)(const float* from, int count, int padded, uint8_t* bytes, float* scale, int32_t* zero);
    void (*normalize)(const float* from, int count, const Norm&, float* to);
    void (*add)(float* to, const float* from, int count);
    void (*embed)(const float* row, float scale, const float* position, int count, float* to);
    void (*rotate)(float* heads, int num_heads, int head_dim, const float* turns);
    void (*gate)(const float* inner, const float* gate, int count, float* to);
    void (*to_bfloat16)(const float* from, int count, uint16_t* to); // to bfloat16
    // Rows that attend to the same; `scores` has room for MAX_QUERIES times the heads.
    void (*attend)(const float* queries, long query_stride, int count, const AttentionArguments&, float* scores, float* to, long to_stride);
    // The largest of some logits, and Σ exp(logit - largest).
    void (*scan)(const float* logits, int count, float* largest, float* sum);
    // Keep the best `keep` candidates, best first, of equal ones the lowest token.
    void (*choose)(const float* logits, int count, int32_t first_token, Candidate* best, int keep);
};

extern const Kernels PORTABLE;
#if defined(__x86_64__)
extern const long FEW_ROWS_PREFETCH; // bytes from the weights that few rows meet to those that are fetched meanwhile
extern const Kernels AVX2, AVX_VNNI, AVX512, AMX;
#endif

// The kernels of this name that this processor can run, or nullptr; without a name its fastest.
const Kernels* find_kernels(const char* name);

} // namespace heedful
