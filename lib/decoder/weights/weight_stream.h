// Weights that do not fit in memory: each step reads them from their file anew, and what is read
// next is asked for beside what is computed. Data path: model/decoder_weights.h -> [here] -> the
// system's page cache. Threads: one, but for other readers of the weights.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "decoder/weights/decoder_weights.h"

namespace dslaunch::decoder {

class WeightStream {
  public:
    // WEIGHTS must outlive this. What they hold in memory of their own is left out.
    explicit WeightStream(const DecoderWeights& weights);

    // Asks the system to read what is computed behind layer LAYER: the next one, or the output
    // layer behind the last. Returns before it is there.
    void ask_behind(size_t layer) const;
    // Asks for the first layer.
    void ask_first() const;

  private:
    using Parts = std::vector<std::span<const std::byte>>;
    static void ask(const Parts& parts);

    std::vector<Parts> layers_;  // of a file's mapping; the output layer is the last
};

}  // namespace dslaunch::decoder
