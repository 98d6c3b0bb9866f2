// The sketch of the output layer, created on first use.
#include "model.h"
#include "thread_pool.h"

namespace heedful {

const Sketch& Model::sketch(const Kernels& kernels, ThreadPool& pool) const {
    const Lock lock(sketch_mutex_);
    if (!sketch_.codes) {
        const long groups = output.padded_inputs / 4, tiles = output.num_tiles, tile_size = groups * TILE;
        uint8_t* codes = codes_.reserve(tiles * tile_size);
        int32_t* sums = code_sums_.reserve(tiles * TILE);
        float* steps = steps_.reserve(tiles * TILE);
        pool.each(tiles, [&](long tile, int) {
            kernels.sketch_tile(output.weights + tile * tile_size * 4, static_cast<int>(groups), codes + tile * tile_size,
                                sums + tile * TILE, steps + tile * TILE);
            for (long i = tile * TILE; i < (tile + 1) * TILE; ++i) steps[i] *= output.scales[i];
        });
        sketch_ = {codes, sums, steps};
    }
    return sketch_;
}

} // namespace heedful
