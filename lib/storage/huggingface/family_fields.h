// Reads fields of a config.json that several families share, and sets the switches of a
// TransformerConfig. Each function throws Error{kInput} that names the field. Data path:
// config.json -> [here] -> transformer_switches.h. Pure.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <optional>
#include <utility>

#include "base/text/json_place.h"
#include "storage/huggingface/transformer_switches.h"

namespace dslaunch::storage {

// The values that a family's config class has for fields that config.json leaves out.
struct FamilyDefaults {
    double theta = 10000;
    // The share of a head's elements that rotate with the position. If not set, all elements
    // rotate, whatever config.json says.
    std::optional<double> rotary_part = std::nullopt;
    double norm_epsilon = 1e-6;
    int64_t head_width = 0;  // if 0, the width divided by the number of heads
    int64_t padding = -1;    // a token; -1 if none
    bool is_tied = false;
    bool has_ropes_by_type = false;  // each kind of layer has a rope; read_like_llama() reads none
};

// Refuse a flag that is on, and a number that is not 0. WHAT says what the field would change.
void require_off(const JsonPlace& config, const char* key, std::string_view what);
void require_zero(const JsonPlace& config, const char* key, std::string_view what);

// Sets `activation` to the function that KEY names, if config.json has KEY.
void read_activation(const JsonPlace& config, const char* key, TransformerConfig& model);

// Sets the names of Llama's modules, and the sizes by Llama's keys, except the MLP's size.
void read_sizes(const JsonPlace& config, TransformerConfig& model, const FamilyDefaults& defaults);
// Sets the names of GPT-2's modules, and the sizes by GPT-2's keys.
void read_gpt_sizes(const JsonPlace& config, TransformerConfig& model);
// Renames modules. Each pair in NAMES is the name used here and the family's name.
void rename(TransformerConfig& model,
            std::initializer_list<std::pair<const char*, const char*>> names);
// Sets layer norms with a bias, and their epsilon from KEY.
void read_layer_norm(const JsonPlace& config, const char* key, TransformerConfig& model);
// Sets the padding token; OF_CLASS is used if config.json has none.
void read_padding(const JsonPlace& config, TransformerConfig& model, int64_t of_class);

// Returns the object with the numbers of rotary positions, under its current or its former name. If
// both objects are there, the one under the former name is used, as in transformers.
[[nodiscard]] std::optional<JsonPlace> rope_object(const JsonPlace& config);
// Reads the rope in the object PLACE of CONFIG. THETA and PART are used if there is no object, or
// if it lacks these numbers.
[[nodiscard]] Rope rope_of(const std::optional<JsonPlace>& place, const JsonPlace& config,
                           const TransformerConfig& model, double theta,
                           std::optional<double> part = std::nullopt);
// Sets one rope for all layers.
void read_rope_of_all(const JsonPlace& config, TransformerConfig& model, double theta,
                      std::optional<double> part = std::nullopt);
// Sets one rope for each type of layer, from rope_parameters. If rope_parameters names no base for
// a type, its base is THETA, or WINDOW_THETA in layers with a window. All elements of a head
// rotate.
void read_ropes_by_type(const JsonPlace& config, TransformerConfig& model, double theta,
                        double window_theta);

// Sets the layers that attend only within a window: config.json's list, or else the layers for
// which BY_DEFAULT is true. If no layer is listed, MODEL has no window.
void read_windows(const JsonPlace& config, TransformerConfig& model,
                  const std::function<bool(size_t)>& by_default);
// Gives all layers a window if config.json has a sliding_window.
void read_window_of_all(const JsonPlace& config, TransformerConfig& model);

// Gives each layer experts; their number is at KEY.
void read_experts(const JsonPlace& config, TransformerConfig& model, const char* key);
// Removes the experts from the layers that decoder_sparse_step and mlp_only_layers exclude.
void read_layers_without_experts(const JsonPlace& config, TransformerConfig& model);

// Reads all fields of a Llama, except ropes by type. DEFAULTS are used for fields that config.json
// leaves out.
void read_like_llama(const JsonPlace& config, TransformerConfig& model,
                     const FamilyDefaults& defaults);

// The readers of the families of decoders. Each sets MODEL's switches from the fields of CONFIG and
// throws Error{kInput} that names a field. Source: the config classes of transformers 5.23.
using FamilyReader = void(const JsonPlace& config, TransformerConfig& model);

// In llama_families.cpp: Llama's blocks with other switches.
FamilyReader read_llama, read_mistral, read_phi3, read_smollm3, read_granite, read_stablelm,
    read_glm, read_glm4, read_seed_oss, read_helium, read_ernie, read_arcee, read_nemotron,
    read_starcoder2;
// In norm_families.cpp: norms in other places, or of other kinds.
FamilyReader read_gemma, read_gemma2, read_gemma3, read_olmo, read_olmo2, read_olmo3, read_cohere,
    read_cohere2;
// In expert_families.cpp.
FamilyReader read_qwen2, read_qwen3, read_qwen2_moe, read_qwen3_moe, read_mixtral, read_olmoe;
// In gpt_families.cpp: the names and fields of GPT-2 and of GPT-NeoX.
FamilyReader read_gpt2, read_gpt_bigcode, read_gptj, read_gpt_neox, read_falcon, read_phi;

}  // namespace dslaunch::storage
