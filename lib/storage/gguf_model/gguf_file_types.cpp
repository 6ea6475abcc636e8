#include "storage/gguf_model/gguf_file_types.h"

#include <algorithm>
#include <charconv>
#include <iterator>

namespace dslaunch::storage {
namespace {

struct NamedType {
    const char* name;
    GgufFileType type;
    GgufForm form;  // of most matrices
};

constexpr NamedType kTypes[] = {
    {"f32", GgufFileType::kF32, GgufForm::kF32},
    {"f16", GgufFileType::kF16, GgufForm::kF16},
    {"bf16", GgufFileType::kBf16, GgufForm::kBf16},
    {"q8_0", GgufFileType::kQ8_0, GgufForm::kQ8_0},
    {"q4_0", GgufFileType::kQ4_0, GgufForm::kQ4_0},
    {"q4_k_m", GgufFileType::kQ4KM, GgufForm::kQ4K},
    {"q3_k_s", GgufFileType::kQ3KS, GgufForm::kQ3K},
    {"q2_k", GgufFileType::kQ2K, GgufForm::kQ2K},
};

GgufForm form_of(GgufFileType type) {
    return std::ranges::find(kTypes, type, &NamedType::type)->form;
}

// Chooses the forms of one file by the same rules, in the same order, as llama.cpp's quantizer.
class Chooser {
  public:
    Chooser(GgufFileType type, const TransformerConfig& config, const GgufFamily& family,
            bool has_importance)
        : type_(type),
          form_(form_of(type)),
          config_(config),
          is_falcon_(std::string_view(family.name) == "falcon"),
          is_llama_(std::string_view(family.name) == "llama"),
          has_importance_(has_importance),
          layers_(std::ssize(config.layers)),
          shared_keys_(config.heads / config.key_heads) {}

    GgufForm choose(const GgufWeight& weight) {
        const std::vector<int64_t> sizes = weight.file_sizes();
        const std::string_view name = weight.tensor;
        const bool is_row = sizes.size() == 1 || (sizes.size() == 2 && sizes.front() == 1);
        const bool is_matrix = !is_row && name.ends_with("weight") &&
                               !name.starts_with("position_embd") &&
                               name.find("_norm.weight") == std::string_view::npos &&
                               name.find("ffn_gate_inp.weight") == std::string_view::npos;
        if (!is_matrix) return GgufForm::kF32;
        if (!is_quantized(form_)) return form_;
        return fitting(wanted(name, sizes.back()), sizes.back());
    }

  private:
    [[nodiscard]] static bool has(std::string_view name, std::string_view part) {
        return name.find(part) != std::string_view::npos;
    }

    // Returns true for the layers in which Q4_K_M gives attn_v and ffn_down more bits: the first
    // eighth, the last eighth, and every third layer between them.
    [[nodiscard]] bool gets_more(int64_t layer) const {
        return layer < layers_ / 8 || layer >= 7 * layers_ / 8 || (layer - layers_ / 8) % 3 == 2;
    }

    static int64_t layer_of(std::string_view name) {
        int64_t layer = 0;
        constexpr std::string_view kLayers = "blk.";
        std::from_chars(name.data() + kLayers.size(), name.data() + name.size(), layer);
        return layer;
    }

    [[nodiscard]] GgufForm wanted(std::string_view name, int64_t row) const {
        if (name == "output.weight" || (config_.is_tied && name == "token_embd.weight")) {
            if (is_falcon_ || row % facts_of(form_).numel != 0) return GgufForm::kQ8_0;
            return form_ == GgufForm::kQ8_0 ? GgufForm::kQ8_0 : GgufForm::kQ6K;
        }
        if (name == "token_embd.weight") return form_;
        if (has(name, "attn_v.weight") || has(name, "attn_qkv.weight")) return of_values(name);
        if (has(name, "attn_k.weight") && config_.experts == 8) return GgufForm::kQ8_0;
        if (has(name, "ffn_down")) return of_down(layer_of(name));
        if (has(name, "attn_output.weight")) return of_output();
        return form_;
    }

    [[nodiscard]] GgufForm of_values(std::string_view name) const {
        GgufForm form = form_;
        if (type_ == GgufFileType::kQ2K) form = shared_keys_ >= 4 ? GgufForm::kQ4K : GgufForm::kQ3K;
        if (type_ == GgufFileType::kQ4KM && gets_more(layer_of(name))) form = GgufForm::kQ6K;
        // In models with 70 B parameters, several query heads share each value head. Llama 65B has
        // as many layers, but no shared heads.
        const bool is_70b = layers_ == 80 && (!is_llama_ || shared_keys_ > 1);
        if (is_70b && (form == GgufForm::kQ3K || form == GgufForm::kQ4K)) form = GgufForm::kQ5K;
        return config_.experts == 8 ? GgufForm::kQ8_0 : form;
    }

    [[nodiscard]] GgufForm of_down(int64_t layer) const {
        if (type_ == GgufFileType::kQ2K) return GgufForm::kQ3K;
        if (type_ == GgufFileType::kQ4KM && is_falcon_)
            return layer < layers_ / 16 ? GgufForm::kQ6K
                   : gets_more(layer)   ? GgufForm::kQ5K
                                        : GgufForm::kQ4K;
        if (type_ == GgufFileType::kQ4KM && gets_more(layer)) return GgufForm::kQ6K;
        if (type_ == GgufFileType::kQ4_0 && has_importance_ && layer < layers_ / 8)
            return GgufForm::kQ4_1;
        return form_;
    }

    [[nodiscard]] GgufForm of_output() const {
        if (is_falcon_) return form_;
        if (config_.experts == 8 && form_ != GgufForm::kQ4_0 && form_ != GgufForm::kQ8_0)
            return GgufForm::kQ5K;
        return type_ == GgufFileType::kQ2K ? GgufForm::kQ3K : form_;
    }

    // Returns FORM if a row of ROW elements consists of whole blocks of FORM, else a form with
    // shorter blocks.
    static GgufForm fitting(GgufForm form, int64_t row) {
        if (row % facts_of(form).numel == 0) return form;
        GgufForm other = GgufForm::kF16;
        if (form == GgufForm::kQ2K || form == GgufForm::kQ3K) other = GgufForm::kQ4_0;
        if (form == GgufForm::kQ4K) other = GgufForm::kQ5_0;
        if (form == GgufForm::kQ5K) other = GgufForm::kQ5_1;
        if (form == GgufForm::kQ6K) other = GgufForm::kQ8_0;
        return row % facts_of(other).numel == 0 ? other : GgufForm::kF16;
    }

    GgufFileType type_;
    GgufForm form_;
    const TransformerConfig& config_;
    bool is_falcon_;
    bool is_llama_;
    bool has_importance_;
    int64_t layers_;
    int64_t shared_keys_;
};

}  // namespace

std::optional<GgufFileType> gguf_file_type(std::string_view name) {
    const auto* const found = std::ranges::find(kTypes, name, &NamedType::name);
    if (found == std::end(kTypes)) return std::nullopt;
    return found->type;
}

std::vector<GgufForm> gguf_forms(GgufFileType type, const TransformerConfig& config,
                                 const GgufFamily& family, std::span<const GgufWeight> weights,
                                 bool has_importance) {
    Chooser chooser(type, config, family, has_importance);
    std::vector<GgufForm> forms;
    for (const GgufWeight& weight : weights) forms.push_back(chooser.choose(weight));
    return forms;
}

}  // namespace dslaunch::storage
