// The text model inside a model that also reads images, such as Gemma3ForConditionalGeneration: its
// config in the form of a separate config.json, and the names of its weights. Source: the config
// classes and conversion_mapping.py of transformers 5.23. Data path: config.json -> [here] ->
// transformer_config.h, folder_weights.h. Pure.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace dslaunch::storage {

// Returns the architecture of CONFIG, a whole config.json, if it describes a model of texts and
// images whose text part can be read; else an empty text.
[[nodiscard]] std::string outer_architecture(const nlohmann::json& config);

// Returns the config of the text model inside CONFIG, whose outer_architecture() is not empty. Its
// model_type belongs to a known family. Nothing else in it is checked.
[[nodiscard]] nlohmann::json text_config_of(const nlohmann::json& config);

// Some fields get a value from the config class of MODEL_TYPE if config.json leaves them out. Adds
// these fields to CONFIG. If WHOLE, CONFIG is the config.json of a whole model; the sizes are then
// not added, since such files always contain them. CONFIG and MODEL_TYPE may be anything.
void add_class_fields(std::string_view model_type, bool whole, nlohmann::json& config);

// Returns the text model's name for the tensor NAME of the whole model; nothing if the tensor
// belongs to the part that reads images. DECODER is the name of the text model's decoder.
[[nodiscard]] std::optional<std::string> name_in_text_model(std::string_view name,
                                                            const std::string& decoder);

}  // namespace dslaunch::storage
