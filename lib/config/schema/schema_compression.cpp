// The table's part on compression while training.
#include "config/schema/schema_tables.h"

namespace dslaunch::config {
namespace {

using enum KeyType;
using enum KeyStatus;

constexpr const char* kNoCompression = "compression is not available yet in this version";

// clang-format off
constexpr KeySpec kCompressionKeys[] = {
    {"compression_training", kObject, "null", "", "Quantization and pruning while training", kNotYet, kNoCompression},
    {"compression_training.weight_quantization", kObject, "null", "", "Weight quantization", kNotYet, kNoCompression},
    {"compression_training.weight_quantization.shared_parameters", kObject, "null", "", "For all groups", kNotYet, kNoCompression},
    {"compression_training.weight_quantization.shared_parameters.enabled", kBool, "false", "", "Turn it on", kNotYet, kNoCompression},
    {"compression_training.weight_quantization.shared_parameters.quantizer_kernel", kBool, "false", "", "Use the kernel", kNotYet, kNoCompression},
    {"compression_training.weight_quantization.shared_parameters.schedule_offset", kInt, "0", ">=0", "First step", kNotYet, kNoCompression},
    {"compression_training.weight_quantization.shared_parameters.quantize_groups", kInt, "1", ">0", "Groups of a tensor", kNotYet, kNoCompression},
    {"compression_training.weight_quantization.shared_parameters.quantize_verbose", kBool, "false", "", "Log it", kNotYet, kNoCompression},
    {"compression_training.weight_quantization.shared_parameters.quantization_type", kString, "symmetric", "symmetric|asymmetric", "Kind", kNotYet, kNoCompression},
    {"compression_training.weight_quantization.shared_parameters.rounding", kString, "nearest", "nearest|stochastic", "Rounding", kNotYet, kNoCompression},
    {"compression_training.weight_quantization.shared_parameters.quantize_weight_in_forward", kBool, "false", "", "Quantize in forward", kNotYet, kNoCompression},
    {"compression_training.weight_quantization.shared_parameters.fp16_mixed_quantize", kObject, "null", "", "Mix with fp16", kNotYet, kNoCompression},
    {"compression_training.weight_quantization.shared_parameters.fp16_mixed_quantize.enabled", kBool, "false", "", "Turn it on", kNotYet, kNoCompression},
    {"compression_training.weight_quantization.shared_parameters.fp16_mixed_quantize.quantize_change_ratio", kFloat, "0.001", ">=0", "Speed of the change", kNotYet, kNoCompression},
    {"compression_training.weight_quantization.different_groups", kObject, "null", "", "Groups of modules", kNotYet, kNoCompression},
    {"compression_training.weight_quantization.different_groups.*", kObject, "null", "", "One group", kNotYet, kNoCompression},
    {"compression_training.weight_quantization.different_groups.*.params", kObject, "null", "", "Its parameters", kNotYet, kNoCompression},
    {"compression_training.weight_quantization.different_groups.*.params.start_bits", kInt, "8", ">0", "Bits at the start", kNotYet, kNoCompression},
    {"compression_training.weight_quantization.different_groups.*.params.target_bits", kInt, "8", ">0", "Bits in the end", kNotYet, kNoCompression},
    {"compression_training.weight_quantization.different_groups.*.params.quantization_period", kInt, "1", ">=0", "Steps between changes", kNotYet, kNoCompression},
    {"compression_training.weight_quantization.different_groups.*.modules", kList, "[\"*\"]", "", "Modules it is for", kNotYet, kNoCompression},
    {"compression_training.weight_quantization.different_groups.*.related_modules", kList, "null", "", "Modules that follow", kNotYet, kNoCompression},
    {"compression_training.activation_quantization", kObject, "null", "", "Activation quantization", kNotYet, kNoCompression},
    {"compression_training.activation_quantization.shared_parameters", kObject, "null", "", "For all groups", kNotYet, kNoCompression},
    {"compression_training.activation_quantization.shared_parameters.enabled", kBool, "false", "", "Turn it on", kNotYet, kNoCompression},
    {"compression_training.activation_quantization.shared_parameters.quantization_type", kString, "symmetric", "symmetric|asymmetric", "Kind", kNotYet, kNoCompression},
    {"compression_training.activation_quantization.shared_parameters.range_calibration", kString, "dynamic", "static|dynamic", "How the range is found", kNotYet, kNoCompression},
    {"compression_training.activation_quantization.shared_parameters.schedule_offset", kInt, "1000", ">=0", "First step", kNotYet, kNoCompression},
    {"compression_training.activation_quantization.different_groups", kObject, "null", "", "Groups of modules", kNotYet, kNoCompression},
    {"compression_training.activation_quantization.different_groups.*", kObject, "null", "", "One group", kNotYet, kNoCompression},
    {"compression_training.activation_quantization.different_groups.*.params", kObject, "null", "", "Its parameters", kNotYet, kNoCompression},
    {"compression_training.activation_quantization.different_groups.*.params.bits", kInt, "8", ">0", "Bits", kNotYet, kNoCompression},
    {"compression_training.activation_quantization.different_groups.*.modules", kList, "[\"*\"]", "", "Modules it is for", kNotYet, kNoCompression},
    {"compression_training.activation_quantization.different_groups.*.related_modules", kList, "null", "", "Modules that follow", kNotYet, kNoCompression},
    {"compression_training.sparse_pruning", kObject, "null", "", "Sparse pruning", kNotYet, kNoCompression},
    {"compression_training.sparse_pruning.shared_parameters", kObject, "null", "", "For all groups", kNotYet, kNoCompression},
    {"compression_training.sparse_pruning.shared_parameters.enabled", kBool, "false", "", "Turn it on", kNotYet, kNoCompression},
    {"compression_training.sparse_pruning.shared_parameters.method", kString, "l1", "l1|topk|snip_momentum", "How weights are chosen", kNotYet, kNoCompression},
    {"compression_training.sparse_pruning.shared_parameters.schedule_offset", kInt, "1000", ">=0", "First step", kNotYet, kNoCompression},
    {"compression_training.sparse_pruning.shared_parameters.schedule_offset_end", kInt, "null", ">=0", "Last step", kNotYet, kNoCompression},
    {"compression_training.sparse_pruning.shared_parameters.schedule_offset_stride", kInt, "1", ">0", "Steps between", kNotYet, kNoCompression},
    {"compression_training.sparse_pruning.shared_parameters.block_pattern", kString, "4x1", "", "Block", kNotYet, kNoCompression},
    {"compression_training.sparse_pruning.shared_parameters.dense_ratio", kFloat, "0.5", "0..1", "Part kept", kNotYet, kNoCompression},
    {"compression_training.sparse_pruning.shared_parameters.excluded_modules", kList, "[]", "", "Modules left alone", kNotYet, kNoCompression},
    {"compression_training.sparse_pruning.different_groups", kObject, "null", "", "Groups of modules", kNotYet, kNoCompression},
    {"compression_training.sparse_pruning.different_groups.*", kObject, "null", "", "One group", kNotYet, kNoCompression},
    {"compression_training.sparse_pruning.different_groups.*.params", kObject, "null", "", "Its parameters", kNotYet, kNoCompression},
    {"compression_training.sparse_pruning.different_groups.*.params.dense_ratio", kFloat, "0.5", "0..1", "Part kept", kNotYet, kNoCompression},
    {"compression_training.sparse_pruning.different_groups.*.modules", kList, "[\"*\"]", "", "Modules it is for", kNotYet, kNoCompression},
    {"compression_training.sparse_pruning.different_groups.*.related_modules", kList, "null", "", "Modules that follow", kNotYet, kNoCompression},
    {"compression_training.row_pruning", kObject, "null", "", "Row pruning", kNotYet, kNoCompression},
    {"compression_training.row_pruning.shared_parameters", kObject, "null", "", "For all groups", kNotYet, kNoCompression},
    {"compression_training.row_pruning.shared_parameters.enabled", kBool, "false", "", "Turn it on", kNotYet, kNoCompression},
    {"compression_training.row_pruning.shared_parameters.method", kString, "l1", "l1|topk", "How rows are chosen", kNotYet, kNoCompression},
    {"compression_training.row_pruning.shared_parameters.schedule_offset", kInt, "1000", ">=0", "First step", kNotYet, kNoCompression},
    {"compression_training.row_pruning.different_groups", kObject, "null", "", "Groups of modules", kNotYet, kNoCompression},
    {"compression_training.row_pruning.different_groups.*", kObject, "null", "", "One group", kNotYet, kNoCompression},
    {"compression_training.row_pruning.different_groups.*.params", kObject, "null", "", "Its parameters", kNotYet, kNoCompression},
    {"compression_training.row_pruning.different_groups.*.params.dense_ratio", kFloat, "0.5", "0..1", "Part kept", kNotYet, kNoCompression},
    {"compression_training.row_pruning.different_groups.*.modules", kList, "[\"*\"]", "", "Modules it is for", kNotYet, kNoCompression},
    {"compression_training.row_pruning.different_groups.*.related_modules", kList, "null", "", "Modules that follow", kNotYet, kNoCompression},
    {"compression_training.head_pruning", kObject, "null", "", "Head pruning", kNotYet, kNoCompression},
    {"compression_training.head_pruning.shared_parameters", kObject, "null", "", "For all groups", kNotYet, kNoCompression},
    {"compression_training.head_pruning.shared_parameters.enabled", kBool, "false", "", "Turn it on", kNotYet, kNoCompression},
    {"compression_training.head_pruning.shared_parameters.method", kString, "topk", "topk|l1", "How heads are chosen", kNotYet, kNoCompression},
    {"compression_training.head_pruning.shared_parameters.schedule_offset", kInt, "1000", ">=0", "First step", kNotYet, kNoCompression},
    {"compression_training.head_pruning.shared_parameters.num_heads", kInt, "null", ">0", "Heads", kNotYet, kNoCompression},
    {"compression_training.head_pruning.different_groups", kObject, "null", "", "Groups of modules", kNotYet, kNoCompression},
    {"compression_training.head_pruning.different_groups.*", kObject, "null", "", "One group", kNotYet, kNoCompression},
    {"compression_training.head_pruning.different_groups.*.params", kObject, "null", "", "Its parameters", kNotYet, kNoCompression},
    {"compression_training.head_pruning.different_groups.*.params.dense_ratio", kFloat, "0.5", "0..1", "Part kept", kNotYet, kNoCompression},
    {"compression_training.head_pruning.different_groups.*.modules", kList, "[\"*\"]", "", "Modules it is for", kNotYet, kNoCompression},
    {"compression_training.head_pruning.different_groups.*.related_modules", kList, "null", "", "Modules that follow", kNotYet, kNoCompression},
    {"compression_training.channel_pruning", kObject, "null", "", "Channel pruning", kNotYet, kNoCompression},
    {"compression_training.channel_pruning.shared_parameters", kObject, "null", "", "For all groups", kNotYet, kNoCompression},
    {"compression_training.channel_pruning.shared_parameters.enabled", kBool, "false", "", "Turn it on", kNotYet, kNoCompression},
    {"compression_training.channel_pruning.shared_parameters.method", kString, "l1", "l1|topk", "How channels are chosen", kNotYet, kNoCompression},
    {"compression_training.channel_pruning.shared_parameters.schedule_offset", kInt, "1000", ">=0", "First step", kNotYet, kNoCompression},
    {"compression_training.channel_pruning.different_groups", kObject, "null", "", "Groups of modules", kNotYet, kNoCompression},
    {"compression_training.channel_pruning.different_groups.*", kObject, "null", "", "One group", kNotYet, kNoCompression},
    {"compression_training.channel_pruning.different_groups.*.params", kObject, "null", "", "Its parameters", kNotYet, kNoCompression},
    {"compression_training.channel_pruning.different_groups.*.params.dense_ratio", kFloat, "0.5", "0..1", "Part kept", kNotYet, kNoCompression},
    {"compression_training.channel_pruning.different_groups.*.modules", kList, "[\"*\"]", "", "Modules it is for", kNotYet, kNoCompression},
    {"compression_training.channel_pruning.different_groups.*.related_modules", kList, "null", "", "Modules that follow", kNotYet, kNoCompression},
    {"compression_training.layer_reduction", kObject, "null", "", "Fewer layers", kNotYet, kNoCompression},
    {"compression_training.layer_reduction.enabled", kBool, "false", "", "Turn it on", kNotYet, kNoCompression},
    {"compression_training.layer_reduction.keep_number_layer", kInt, "null", ">0", "Layers kept", kNotYet, kNoCompression},
    {"compression_training.layer_reduction.module_name_prefix", kString, "null", "", "Name before the number", kNotYet, kNoCompression},
    {"compression_training.layer_reduction.teacher_layer", kList, "null", "", "Layers of the teacher", kNotYet, kNoCompression},
    {"compression_training.layer_reduction.other_module_name", kList, "null", "", "Other modules to copy", kNotYet, kNoCompression},
};
// clang-format on

}  // namespace

std::span<const KeySpec> compression_keys() {
    return kCompressionKeys;
}

}  // namespace dslaunch::config
