// The settings of compression_training and dslaunch.distill. Compression stores weights and
// activations in few bits, masks weights or removes layers. Distillation trains with a teacher
// model. Part of RunConfig.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace dslaunch::config {

// An entry of `different_groups`: a set of modules, and the settings of one compression method for
// these modules.
struct CompressedGroup {
    std::string name;
    // Regular expressions. A group contains a module if an expression is found in the module's
    // name; `*` alone is found in every name.
    std::vector<std::string> modules;
    // For each expression in `modules`, the modules that lose the same rows or columns.
    std::vector<std::vector<std::string>> related;
    int64_t bits = 0;          // activations
    int64_t start_bits = 0;    // weights
    int64_t target_bits = 0;   // weights
    int64_t period = 0;        // weights: updates before the first bit is taken away
    double dense_ratio = 1.0;  // pruning: the part that stays

    bool operator==(const CompressedGroup&) const = default;
};

// The settings of weight_quantization. If `in_forward` is false, the number of bits decreases from
// start_bits to target_bits.
struct WeightQuantization {
    bool in_forward = false;  // target_bits from the first update on, rounded to nearest
    bool is_symmetric = true;
    bool is_stochastic = false;
    int64_t groups = 1;  // parts of a weight with a scale each
    int64_t offset = 0;  // updates before it begins
    bool mixes = false;  // the unrounded weight is mixed in, with a falling share
    double change_ratio = 0.001;
    std::vector<CompressedGroup> parts;  // empty: off

    bool operator==(const WeightQuantization&) const = default;
};

// activation_quantization.
struct ActivationQuantization {
    bool is_symmetric = true;
    bool is_static = false;              // the range is an average over earlier batches
    int64_t offset = 0;                  // updates before it begins
    std::vector<CompressedGroup> parts;  // empty: off

    bool operator==(const ActivationQuantization&) const = default;
};

// sparse_pruning, row_pruning, head_pruning or channel_pruning.
struct Pruning {
    bool learns = false;  // true for topk, by trained scores; false for l1, by the first weights
    int64_t offset = 0;   // updates before it begins
    int64_t heads = 0;    // of head_pruning
    std::vector<CompressedGroup> parts;  // empty: off

    bool operator==(const Pruning&) const = default;
};

// layer_reduction: the model begins with some layers of a teacher.
struct LayerReduction {
    bool enabled = false;
    std::string prefix;                   // module_name_prefix
    std::vector<int64_t> teacher_layers;  // one for each layer of the model
    std::vector<std::string> others;      // other_module_name

    bool operator==(const LayerReduction&) const = default;
};

// The values that training makes similar to the teacher's values: kLogits means the outputs of the
// model. kHidden means the inputs of its output layer.
enum class DistillKind : uint8_t { kLogits, kHidden };

// dslaunch.distill: a larger model that this one learns from.
struct DistillConfig {
    std::string teacher;  // path of the model; empty if there is none
    DistillKind kind = DistillKind::kLogits;
    double temperature = 1.0;
    double weight = 0.5;  // of the teacher's loss; the data's loss has 1 - weight

    // Returns true if the teacher is a part of the loss.
    [[nodiscard]] bool teaches() const { return !teacher.empty() && weight > 0; }
    bool operator==(const DistillConfig&) const = default;
};

// All settings of compression.
struct CompressionConfig {
    WeightQuantization weights;
    ActivationQuantization activations;
    Pruning sparse;
    Pruning rows;
    Pruning heads;
    Pruning channels;
    LayerReduction reduction;
    DistillConfig distill;

    // Returns true if the graph of the model changes.
    [[nodiscard]] bool changes_graph() const {
        return !weights.parts.empty() || !activations.parts.empty() || prunes();
    }
    // Returns true if weights are masked.
    [[nodiscard]] bool prunes() const {
        return !sparse.parts.empty() || !rows.parts.empty() || !heads.parts.empty() ||
               !channels.parts.empty();
    }
    bool operator==(const CompressionConfig&) const = default;
};

}  // namespace dslaunch::config
