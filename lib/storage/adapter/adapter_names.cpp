#include "storage/adapter/adapter_names.h"

#include <algorithm>
#include <array>
#include <vector>

#include "base/text.h"

namespace dslaunch::storage {

namespace {

using Parts = std::vector<std::string>;

constexpr std::string_view kPrefix = "base_model.model.";

// Returns true if PART of a name stands for a wrapper that compiling or sharding puts around a
// module.
bool is_wrapper(const std::string& part) {
    return part == "_orig_mod" || part == "_fsdp_wrapped_module" ||
           part == "_checkpoint_wrapped_module";
}

std::string joined(const Parts& parts, size_t begin, size_t end) {
    return join(Parts(parts.begin() + static_cast<std::ptrdiff_t>(begin),
                      parts.begin() + static_cast<std::ptrdiff_t>(end)),
                ".");
}

AdapterRole role_of(const Parts& rest) {
    const std::string& kind = rest.front();
    // The kind may be followed by the adapter's name and the parameter's name.
    const std::string& last = rest.back();
    if (rest.size() > 3) return AdapterRole::kUnknown;
    if (kind == "lora_embedding_A") return AdapterRole::kTableA;
    if (kind == "lora_embedding_B") return AdapterRole::kTableB;
    if (kind == "lora_magnitude_vector") return AdapterRole::kMagnitude;
    if (kind == "lora_A" && last == "weight") return AdapterRole::kA;
    if (kind == "lora_B" && last == "weight") return AdapterRole::kB;
    if (kind == "lora_B" && last == "bias") return AdapterRole::kBiasOfB;
    if (kind == "trainable_tokens_delta") return AdapterRole::kTokenRows;
    return AdapterRole::kUnknown;
}

bool begins_with(std::string& path, std::string_view prefix) {
    if (!path.starts_with(prefix)) return false;
    path.erase(0, prefix.size());
    return true;
}

// Returns PATH with the part OTHER replaced by OWN wherever OTHER follows the number of a layer.
// For example, "layers.0.OTHER.gate" becomes "layers.0.OWN.gate".
std::string renamed_part(const std::string& path, const std::string& other,
                         const std::string& own) {
    Parts parts = split(path, '.');
    for (size_t i = 1; i < parts.size(); ++i)
        if (parts[i] == other && parse_int(parts[i - 1])) parts[i] = own;
    return join(parts, ".");
}

}  // namespace

AdapterName read_adapter_name(std::string_view name) {
    while (name.starts_with(kPrefix)) name.remove_prefix(kPrefix.size());
    Parts parts = split(name, '.');
    std::erase_if(parts, is_wrapper);
    AdapterName read;
    size_t at = 0;
    const auto is_plain = [](const std::string& part) {
        return !part.starts_with("lora_") && part != "base_layer" && part != "modules_to_save" &&
               part != "original_module" && part != "token_adapter";
    };
    while (at < parts.size() && is_plain(parts[at])) ++at;
    read.path = joined(parts, 0, at);
    if (at == parts.size()) {
        read.role = read.path.empty() ? AdapterRole::kUnknown : AdapterRole::kWhole;
        return read;
    }
    for (; at < parts.size() && (parts[at] == "base_layer" || parts[at] == "token_adapter"); ++at)
        read.wraps += parts[at] == "base_layer" ? 1 : 0;
    if (at == parts.size()) return read;
    if (parts[at] == "original_module") {
        read.role = AdapterRole::kCopy;
    } else if (parts[at] == "modules_to_save" && at + 1 < parts.size()) {
        // The name is modules_to_save.ADAPTER.NAME; for embedding tables that were resized,
        // PEFT leaves out ADAPTER.
        const size_t name_at = at + 2 < parts.size() ? at + 2 : at + 1;
        read.path.append(".").append(joined(parts, name_at, parts.size()));
        read.role = AdapterRole::kWhole;
    } else if (parts[at].starts_with("lora_") || parts[at] == "trainable_tokens_delta") {
        read.role = role_of(Parts(parts.begin() + static_cast<std::ptrdiff_t>(at), parts.end()));
    } else if (read.wraps > 0 || parts[at - 1] == "token_adapter") {
        read.path.append(".").append(joined(parts, at, parts.size()));
        read.role = AdapterRole::kWhole;
    }
    return read;
}

std::string name_in_adapter(std::string_view name) {
    return std::string(kPrefix) + std::string(name);
}

std::string table_of(const TransformerConfig& model) {
    return model.names.at("decoder") + "." + model.names.at("embed");
}

std::string head_of(const TransformerConfig& model) {
    return model.names.at("head");
}

std::string path_in_model(const TransformerConfig& model, const std::string& path) {
    const std::string decoder = model.names.at("decoder") + ".", head = head_of(model);
    std::string inner = path;
    const bool is_of_part =
        path.starts_with("model.language_model.") || path.starts_with("model.text_model.");
    if (is_of_part || !begins_with(inner, decoder)) {
        static_cast<void>(begins_with(inner, "language_model."));
        // GPT-NeoX's output layer has two names, depending on the release of transformers.
        for (const std::string& name : {head, std::string("lm_head"), std::string("embed_out")})
            if (inner == name || inner.starts_with(name + "."))
                return head + inner.substr(name.size());
        for (const std::string_view outer : {"model.language_model.", "model.text_model.",
                                             "language_model.", "model.", "transformer."})
            if (begins_with(inner, outer)) break;
    }
    // Mixtral's experts were in `block_sparse_moe` before transformers 5, and are in `mlp` now.
    if (model.has_experts()) {
        const std::string& own = model.names.at("mlp");
        for (const char* other : {"mlp", "block_sparse_moe"})
            inner = renamed_part(inner, other, own);
    }
    return decoder + inner;
}

}  // namespace dslaunch::storage
