#include "storage/quantized/quantization.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/text.h"

namespace dslaunch::storage {
namespace {

constexpr int64_t kGroupMax = int64_t{1} << 28;

bool flag_at(const JsonPlace& place, const char* key, bool otherwise) {
    return place.has(key) ? place.at(key).boolean() : otherwise;
}

int bits_at(const JsonPlace& place, const char* key) {
    const JsonPlace bits = place.at(key);
    if (bits.integer() < 1 || bits.integer() > 8)
        bits.refuse("only weights of 1 to 8 bits are supported");
    return static_cast<int>(bits.integer());
}

// Refuses a setting that changes what the numbers mean.
void refuse_if_given(const JsonPlace& place, const char* key, const char* why) {
    if (!place.has(key)) return;
    const JsonPlace given = place.at(key);
    bool is_empty = given.is_object();
    if (is_empty)
        given.for_members([&](const std::string&, const JsonPlace&) { is_empty = false; });
    if (!is_empty) given.refuse(why);
}

// Returns the number of inputs that share a scale. Returns 0 for -1, which means one scale for a
// whole row.
int64_t group_or_row(const JsonPlace& group) {
    if (group.integer() != -1 && (group.integer() < 1 || group.integer() > kGroupMax))
        group.refuse(fmt::format("must be from 1 to {}, or -1 for one group per row", kGroupMax));
    return std::max<int64_t>(group.integer(), 0);
}

int64_t group_at(const JsonPlace& weights, const std::string& strategy) {
    if (strategy == "channel") return 0;
    if (strategy == "tensor") return -1;
    if (strategy != "group")
        weights.at("strategy").refuse("only tensor, channel and group are supported");
    const JsonPlace group = weights.at("group_size");
    if (group.integer() < 1) group.refuse("a group must have at least one input");
    return group.integer();
}

WeightScheme read_weights(const JsonPlace& weights) {
    WeightScheme scheme;
    scheme.bits = bits_at(weights, "num_bits");
    const std::string type = weights.has("type") ? weights.at("type").text() : "int";
    if (type != "int" && type != "float") weights.at("type").refuse("expected int or float");
    scheme.is_float = type == "float";
    if (scheme.is_float && scheme.bits != 8)
        weights.at("num_bits").refuse("only floats of 8 bits are supported");
    scheme.is_symmetric = flag_at(weights, "symmetric", true);
    const int64_t group = weights.has("group_size") ? weights.at("group_size").integer() : 0;
    const std::string strategy = weights.has("strategy") ? weights.at("strategy").text()
                                 : group > 0             ? "group"
                                 : group == -1           ? "channel"
                                                         : "tensor";
    scheme.group = group_at(weights, strategy);
    return scheme;
}

InputRounding read_inputs(const JsonPlace& inputs) {
    if (!inputs.has("dynamic") || !inputs.at("dynamic").boolean())
        inputs.refuse(
            "stored scales of activations are not supported; only dynamic scales, by token, are "
            "supported");
    if (!inputs.has("strategy") || inputs.at("strategy").text() != "token")
        inputs.refuse("only activations that are quantized by token are supported");
    if (bits_at(inputs, "num_bits") != 8 || !flag_at(inputs, "symmetric", true))
        inputs.refuse("only symmetric activations of 8 bits are supported");
    const std::string type = inputs.has("type") ? inputs.at("type").text() : "int";
    return type == "float" ? InputRounding::kE4m3 : InputRounding::kInt8;
}

Quantization read_compressed_tensors(const JsonPlace& place) {
    static const std::vector<std::string> formats = {"pack-quantized", "int-quantized",
                                                     "float-quantized", "naive-quantized"};
    const JsonPlace format = place.at("format");
    if (std::ranges::find(formats, format.text()) == formats.end())
        format.refuse(fmt::format("the format `{}` is not supported; supported are {}",
                                  printable(format.text()), join(formats, ", ")));
    refuse_if_given(place, "kv_cache_scheme",
                    "quantized keys and values (a quantized KV cache) are not supported");
    const bool is_dense = place.has("sparsity_config") && place.at("sparsity_config").is_object() &&
                          place.at("sparsity_config").has("format") &&
                          place.at("sparsity_config").at("format").text() == "dense";
    if (!is_dense) refuse_if_given(place, "sparsity_config", "sparse weights are not supported");
    refuse_if_given(place, "transform_config", "transformed weights are not supported");
    Quantization how;
    bool is_first = true;
    place.at("config_groups").for_members([&](const std::string&, const JsonPlace& group) {
        refuse_if_given(group, "output_activations", "quantized outputs are not supported");
        how.schemes.push_back(read_weights(group.at("weights")));
        const InputRounding inputs = group.has("input_activations")
                                         ? read_inputs(group.at("input_activations"))
                                         : InputRounding::kNone;
        if (!is_first && inputs != how.inputs)
            group.refuse("all groups must quantize the activations in the same way");
        how.inputs = inputs;
        is_first = false;
    });
    if (is_first) place.at("config_groups").refuse("names no group of layers");
    return how;
}

int gptq_bits_at(const JsonPlace& place) {
    const int bits = bits_at(place, "bits");
    if (bits != 2 && bits != 3 && bits != 4 && bits != 8)
        place.at("bits").refuse("GPTQ has 2, 3, 4 or 8 bits");
    return bits;
}

int awq_bits_at(const JsonPlace& place) {
    const char* const key = place.has("bits") ? "bits" : "w_bit";
    if (bits_at(place, key) != 4) place.at(key).refuse("AWQ has 4 bits");
    return 4;
}

int packed_bits_at(const JsonPlace& place) {
    const int bits = bits_at(place, "bits");
    if (bits < 2) place.at("bits").refuse("only weights of 2 to 8 bits are supported");
    return bits;
}

// Reads MODULES, which has settings for single modules by name or pattern, and adds their schemes
// to HOW. Does not keep the names, because a module's tensors show its scheme. Skips modules of 16
// bits, which are not quantized.
void add_schemes_of_modules(const JsonPlace& modules, int (*bits_of)(const JsonPlace&),
                            Quantization& how) {
    const WeightScheme all = how.schemes.front();
    modules.for_members([&](const std::string&, const JsonPlace& own) {
        WeightScheme scheme = all;
        if (own.has("bits")) {
            if (own.at("bits").integer() >= 16) return;
            scheme.bits = bits_of(own);
        }
        if (own.has("group_size")) scheme.group = group_or_row(own.at("group_size"));
        if (std::ranges::find(how.schemes, scheme) == how.schemes.end())
            how.schemes.push_back(scheme);
    });
}

Quantization read_gptq(const JsonPlace& place) {
    Quantization how;
    how.method = QuantizationMethod::kGptq;
    // GPTQ's files always have zero points, so the scheme is not symmetric.
    how.schemes = {{gptq_bits_at(place), false, false, group_or_row(place.at("group_size"))}};
    if (place.has("dynamic")) add_schemes_of_modules(place.at("dynamic"), gptq_bits_at, how);
    const std::string format =
        place.has("checkpoint_format") ? place.at("checkpoint_format").text() : "gptq";
    if (format != "gptq" && format != "gptq_v2")
        place.at("checkpoint_format").refuse("expected gptq or gptq_v2");
    how.stores_zeros_less_one = format == "gptq";
    return how;
}

// Refuses settings of auto-round that produce numbers other than integers, or that round
// activations. PLACE has the settings of a folder or of one module.
void require_integers(const JsonPlace& place) {
    if (place.has("data_type") && place.at("data_type").text() != "int")
        place.at("data_type").refuse("only integers (int) are supported in folders of auto-round");
    if (place.has("act_bits") && place.at("act_bits").integer() < 16)
        place.at("act_bits")
            .refuse("quantized activations are not supported in folders of auto-round");
}

Quantization read_auto_round(const JsonPlace& place) {
    // The field `packing_format` says whether the layout comes from GPTQ or from AWQ. Older
    // versions call this field `backend`.
    const char* const key = place.has("packing_format") ? "packing_format" : "backend";
    const std::string layout = place.has(key) ? place.at(key).text() : "auto_round:auto_gptq";
    const auto is_any_of = [&](std::initializer_list<std::string_view> names) {
        return std::ranges::find(names, layout) != names.end();
    };
    const bool is_awq = is_any_of({"auto_round:auto_awq", "auto_round:awq"});
    const bool is_first_gptq = is_any_of({"auto_round:auto_gptq", "auto_round:gptq"});
    if (!is_awq && !is_first_gptq && !is_any_of({"auto_round", "auto_round:gptqmodel"}))
        place.at(key).refuse(
            "only the layouts auto_round, auto_round:auto_gptq, auto_round:gptqmodel and "
            "auto_round:auto_awq are supported");
    require_integers(place);
    for (const char* const changed : {"rotation_config", "transform_config"})
        refuse_if_given(place, changed, "transformed weights are not supported");
    Quantization how;
    how.method = is_awq ? QuantizationMethod::kAwq : QuantizationMethod::kGptq;
    const auto bits = is_awq ? awq_bits_at : packed_bits_at;
    how.schemes = {{bits(place), false, false, group_or_row(place.at("group_size"))}};
    how.stores_zeros_less_one = is_first_gptq;
    for (const char* const modules : {"extra_config", "dynamic"}) {
        if (!place.has(modules)) continue;
        place.at(modules).for_members(
            [&](const std::string&, const JsonPlace& own) { require_integers(own); });
        add_schemes_of_modules(place.at(modules), bits, how);
    }
    return how;
}

Quantization read_awq(const JsonPlace& place) {
    Quantization how;
    how.method = QuantizationMethod::kAwq;
    const int bits = awq_bits_at(place);
    if (place.has("version") && lower(place.at("version").text()) != "gemm")
        place.at("version").refuse("only the layout gemm is supported");
    const char* const group = place.has("group_size") ? "group_size" : "q_group_size";
    how.schemes = {{bits, false, false, group_or_row(place.at(group))}};
    return how;
}

}  // namespace

std::string_view method_name(QuantizationMethod method) {
    if (method == QuantizationMethod::kCompressedTensors) return "compressed-tensors";
    return method == QuantizationMethod::kGptq ? "gptq" : "awq";
}

std::optional<Quantization> parse_quantization(const JsonPlace& place) {
    bool asks = false;
    place.for_members([&](const std::string&, const JsonPlace&) { asks = true; });
    if (!asks) return std::nullopt;
    const std::string method =
        place.has("quant_method") ? place.at("quant_method").text() : "none named";
    if (method == "compressed-tensors") return read_compressed_tensors(place);
    if (method == "gptq") return read_gptq(place);
    if (method == "awq") return read_awq(place);
    if (method == "auto-round" || method == "intel/auto-round") return read_auto_round(place);
    if (method == "bitsandbytes" && !flag_at(place, "load_in_4bit", false) &&
        !flag_at(place, "load_in_8bit", false))
        return std::nullopt;
    place.refuse(fmt::format(
        "the weights are quantized by a method that this version does not read ({}); it reads "
        "compressed-tensors, gptq, awq and auto-round. Use the folder of the model in 16 or 32 "
        "bits, or remove this field if the weights are stored in 16 or 32 bits",
        printable(method)));
}

}  // namespace dslaunch::storage
