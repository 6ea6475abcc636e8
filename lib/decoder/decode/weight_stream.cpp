#include "decoder/decode/weight_stream.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>

namespace dslaunch::decoder {

WeightStream::WeightStream(const DecoderWeights& weights) {
    const auto add = [](Parts& parts, const LinearWeights& linear) {
        const OwnedMatrix& owned = linear.weight;
        if (owned.file == nullptr || owned.matrix.data == nullptr) return;
        parts.emplace_back(owned.matrix.data,
                           static_cast<size_t>(kernels::matrix_bytes(owned.matrix.shape)));
    };
    const auto add_mlp = [&](Parts& parts, const MlpWeights& mlp) {
        for (const LinearWeights* linear : {&mlp.gate, &mlp.up, &mlp.down}) add(parts, *linear);
    };
    for (const LayerWeights& layer : weights.layers) {
        Parts& parts = layers_.emplace_back();
        for (const LinearWeights* linear :
             {&layer.query, &layer.key, &layer.value, &layer.fused, &layer.output})
            add(parts, *linear);
        add_mlp(parts, layer.mlp);
        add_mlp(parts, layer.shared_expert);
        // Experts are left out: it is not known in advance which ones a step will read.
    }
    add(layers_.emplace_back(), weights.head);
}

// If the system refuses the request, only time is lost: the weights are then read when they are
// first used.
void WeightStream::ask(size_t layer) const {
    static const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
    for (const std::span<const std::byte> part : layers_[layer]) {
        const auto begin = reinterpret_cast<uintptr_t>(part.data());
        const uintptr_t first = begin / page * page;
        ::madvise(reinterpret_cast<void*>(first), begin + part.size() - first, MADV_WILLNEED);
    }
}

}  // namespace dslaunch::decoder
