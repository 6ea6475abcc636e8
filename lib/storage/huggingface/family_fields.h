// Fields of a config.json that several families share, as they set the switches of a
// TransformerConfig. Each throws Error{kInput} that names the field. Data path: config.json ->
// [here] -> family_readers.h. Pure.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <optional>
#include <utility>

#include "base/text/json_place.h"
#include "storage/huggingface/transformer_switches.h"

namespace dslaunch::storage {

// What a family's config class has where config.json is silent.
struct FamilyDefaults {
    double theta = 10000;
    // The share of a head that turns; nothing: whole heads do, whatever config.json says.
    std::optional<double> rotary_part = std::nullopt;
    double norm_epsilon = 1e-6;
    int64_t head_width = 0;  // 0: the width divided by the heads
    int64_t padding = -1;    // a token; -1: none
    bool tied = false;
    bool ropes_by_type = false;  // kinds of layers have a rope each, which read_like_llama leaves
};

// Refuses a flag that is on, or a number that is not 0.
void require_off(const JsonPlace& config, const char* key, std::string_view what);
void require_zero(const JsonPlace& config, const char* key, std::string_view what);

// Sets `activation` to what KEY names, if it is there.
void read_activation(const JsonPlace& config, const char* key, TransformerConfig& model);

// Sets the names of Llama's modules, and the sizes by Llama's keys, but for that of the MLP.
void read_sizes(const JsonPlace& config, TransformerConfig& model, const FamilyDefaults& defaults);
// The sizes by the keys of GPT-2; names as rename() leaves them.
void read_gpt_sizes(const JsonPlace& config, TransformerConfig& model);
// NAMES: of this file's modules, and of the family's.
void rename(TransformerConfig& model,
            std::initializer_list<std::pair<const char*, const char*>> names);
// Layers with a bias in each norm, and an epsilon at KEY.
void read_layer_norm(const JsonPlace& config, const char* key, TransformerConfig& model);
void read_padding(const JsonPlace& config, TransformerConfig& model, int64_t of_class);

// The object with the numbers of rotary positions, in the files of today and of before. Where both
// are there, that of before counts, as in transformers.
[[nodiscard]] std::optional<JsonPlace> rope_object(const JsonPlace& config);
// Where CONFIG has no object, or one without these numbers, THETA and PART count.
[[nodiscard]] Rope rope_of(const std::optional<JsonPlace>& place, const JsonPlace& config,
                           const TransformerConfig& model, double theta,
                           std::optional<double> part = std::nullopt);
// One rope for all layers.
void read_rope_of_all(const JsonPlace& config, TransformerConfig& model, double theta,
                      std::optional<double> part = std::nullopt);
// A rope for each type of layer in rope_parameters, or else the two given. Whole heads turn.
void read_ropes_by_type(const JsonPlace& config, TransformerConfig& model, double theta,
                        double window_theta);

// Layers that see a window: those that config.json lists, or else those of which BY_DEFAULT says
// so. No layer listed: MODEL has no window.
void read_windows(const JsonPlace& config, TransformerConfig& model,
                  const std::function<bool(size_t)>& by_default);
// All layers where config.json has a sliding_window.
void read_window_of_all(const JsonPlace& config, TransformerConfig& model);

// Experts in each layer; their number at KEY.
void read_experts(const JsonPlace& config, TransformerConfig& model, const char* key);
// Takes experts from the layers that decoder_sparse_step and mlp_only_layers leave without.
void read_layers_without_experts(const JsonPlace& config, TransformerConfig& model);

// All that a Llama has, but for ropes by type; DEFAULTS where its config.json is silent.
void read_like_llama(const JsonPlace& config, TransformerConfig& model,
                     const FamilyDefaults& defaults);

}  // namespace dslaunch::storage
