// Reads weights that do not fit in memory. Each step reads them from their file again; this object
// asks the system to read the next layer's weights while the step computes.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "decoder/weights/decoder_weights.h"

namespace dslaunch::decoder {

// The weights of each layer that are mapped from a file. One thread calls the functions; other
// threads may read the weights.
class WeightStream {
  public:
    // WEIGHTS must outlive this object. Weights that are not mapped from a file are left out.
    explicit WeightStream(const DecoderWeights& weights);

    // Starts reading the weights of layer LAYER, and does not wait for them. LAYER may also be the
    // number of layers, which means the output layer.
    void ask(size_t layer) const;

  private:
    using Parts = std::vector<std::span<const std::byte>>;
    std::vector<Parts> layers_;  // parts mapped from a file; the last entry is the output layer
};

}  // namespace dslaunch::decoder
