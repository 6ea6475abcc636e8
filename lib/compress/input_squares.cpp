#include "compress/input_squares.h"

#include <optional>
#include <span>

#include "compress/layer_walk.h"
#include "compress/memory_plan.h"
#include "decoder/decode/row_math.h"
#include "decoder/weights/weight_source.h"

namespace dslaunch::compress {
namespace {

// The sums of one layer's inputs.
struct SquareSums {
    std::vector<double> squares;
    int64_t rows = 0;
};

void add_squares(const float* x, int64_t in, int64_t rows, SquareSums& sums) {
    sums.squares.resize(static_cast<size_t>(in));
    for (int64_t row = 0; row < rows; ++row)
        for (int64_t i = 0; i < in; ++i) {
            const auto number = static_cast<double>(x[row * in + i]);
            sums.squares[static_cast<size_t>(i)] += number * number;
        }
    sums.rows += rows;
}

}  // namespace

std::map<std::string, std::vector<float>> input_squares(
    const storage::ModelFolder& folder, const storage::RotaryFrequencies& frequencies,
    const std::vector<std::vector<int32_t>>& texts, const std::optional<MemoryLimit>& memory,
    kernels::ThreadTeam& team, const std::function<void(int64_t layers)>& progress) {
    decoder::WeightSource source(folder, std::nullopt, team);
    LayerWalk walk(folder.config, source, frequencies, texts, team);
    static_cast<void>(plan_memory(folder.config, {}, walk.size(), memory));
    std::map<std::string, SquareSums> sums;
    const int64_t layers = std::ssize(folder.config.layers);
    for (int64_t layer = 0; layer < layers; ++layer) {
        walk.observe_and_advance([&](std::span<const decoder::RowMath::Use> uses, const float* x,
                                     int64_t in, int64_t rows) {
            // Parts of one stored weight have the same inputs, so their squares are added only
            // once.
            const std::string* before = nullptr;
            for (const decoder::RowMath::Use& use : uses) {
                const std::string& name = use.layer->name;
                if (name.empty() || (before != nullptr && *before == name)) continue;
                add_squares(x, in, rows, sums[name]);
                before = &name;
            }
        });
        if (progress) progress(layer + 1);
    }
    std::map<std::string, std::vector<float>> means;
    for (const auto& [name, sum] : sums)
        for (const double square : sum.squares)
            means[name].push_back(static_cast<float>(square / static_cast<double>(sum.rows)));
    return means;
}

}  // namespace dslaunch::compress
