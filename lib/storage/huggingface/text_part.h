// The text model within a model that also sees images, such as Gemma3ForConditionalGeneration: its
// config as a config.json of its own, and its weights' names there. Source: the config classes and
// conversion_mapping.py of transformers 5.23. Data path: config.json -> [here] ->
// transformer_config.h, folder_weights.h. Pure.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace dslaunch::storage {

// Returns the architecture of CONFIG, a whole config.json, if that is a model of texts and images
// whose text part can be read; else an empty text.
[[nodiscard]] std::string outer_architecture(const nlohmann::json& config);

// Returns the config of the text model within CONFIG, whose name outer_architecture() knows. Its
// model_type belongs to a family. It is not checked.
[[nodiscard]] nlohmann::json text_config_of(const nlohmann::json& config);

// Gives CONFIG the fields that it lacks and the config class of MODEL_TYPE sets; for WHOLE configs
// only the ones that are not the model's sizes, which their files have. CONFIG and MODEL_TYPE may
// be any.
void add_class_fields(std::string_view model_type, bool whole, nlohmann::json& config);

// Returns the name that tensor NAME of the whole has in the text model whose decoder is called
// DECODER; nothing if it belongs to the part that sees images.
[[nodiscard]] std::optional<std::string> name_in_text_model(std::string_view name,
                                                            const std::string& decoder);

}  // namespace dslaunch::storage
