// Weights as their layers read them: rounded and masked (graph/rounding/compressed_parameter.h).
// Final weights are written in this form, so that the files compute what was trained. Data path:
// final weights -> [here] -> weight writer. One thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "graph/archive/model.h"
#include "graph/rounding/compressed_parameter.h"
#include "runtime/save/save_weights.h"

namespace dslaunch::runtime {

// The facts that determine the written weights, besides the trained values.
struct CompressionEnd {
    const std::vector<graph::CompressedParameter>* parameters = nullptr;
    int64_t updates = 0;  // updates done in the run
    uint64_t seed = 0;    // the run's seed
    std::vector<graph::Shrink> shrinks = {};
    std::function<double()> loss = {};  // SmallerWeights::loss
    double tolerance = 0;               // SmallerWeights::tolerance
    // The type in which layers read parameters. The final values are rounded and ranked in this
    // type, and not as fp32 master copies.
    at::ScalarType parameter_dtype = at::kFloat;
};

// Returns one line about the weights: the number of weights for each number of bits, and the masks
// that are on.
[[nodiscard]] std::string describe_compressed(const CompressionEnd& end);

// A sink that rounds and masks the values it gets, and puts them into another sink. A weight whose
// mask depends on scores waits in memory until the scores have come.
class CompressedWeights final : public WeightSink {
  public:
    // MODEL and the objects that END points to must outlive this object. HERE lists the compressed
    // parameters and scores whose values are in MODEL's tensors: finish() takes these values from
    // there, so put() must not be called for them. Smaller weights are written into FOLDER/smaller.
    CompressedWeights(graph::Model& model, CompressionEnd end, std::vector<int> here,
                      std::string folder, std::unique_ptr<WeightSink> sink);

    void put(int parameter, std::span<const float> values) override;
    void finish() override;

  private:
    [[nodiscard]] bool is_ready(const graph::CompressedParameter& made) const;
    [[nodiscard]] at::Tensor source_of(const graph::WeightMask& mask) const;
    void pass_on(const graph::CompressedParameter& made, const at::Tensor& values);
    void take(const graph::CompressedParameter& made, const at::Tensor& values);
    void write_shrunk();

    graph::Model& model_;
    CompressionEnd end_;
    std::vector<int> here_;
    std::string folder_;
    std::unique_ptr<WeightSink> sink_;
    std::map<int, const graph::CompressedParameter*> made_of_;  // by parameter
    std::map<int, at::Tensor> scores_;   // by parameter; undefined until they come
    std::map<int, at::Tensor> waiting_;  // by parameter
};

}  // namespace dslaunch::runtime
