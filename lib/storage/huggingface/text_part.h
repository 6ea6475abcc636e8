// The text model within a model that sees images too, as Gemma3ForConditionalGeneration: its config
// as a config.json of its own, and the names that its weights have there. Source: the config
// classes and conversion_mapping.py of transformers 5.23. Data path: config.json -> [here] ->
// transformer_config.h, folder_weights.h. Pure.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace dslaunch::storage {

// Returns the architecture of CONFIG, the whole of a config.json, if that is a model of texts and
// images whose text part is read; empty: it is any other.
[[nodiscard]] std::string outer_architecture(const nlohmann::json& config);

// Returns the config of the text model within CONFIG, of which outer_architecture() knows the name.
// Its model_type is one of a family's. Nothing of it is checked.
[[nodiscard]] nlohmann::json text_config_of(const nlohmann::json& config);

// Gives CONFIG the fields that it does not mention and that the config class of MODEL_TYPE sets, of
// WHOLE configs those alone that are not the model's sizes: their files have these. CONFIG and
// MODEL_TYPE may be any.
void add_class_fields(std::string_view model_type, bool whole, nlohmann::json& config);

// Returns the name that tensor NAME of the whole has in the text model whose decoder is called
// DECODER; nothing: it is of the part that sees images.
[[nodiscard]] std::optional<std::string> name_in_text_model(std::string_view name,
                                                            const std::string& decoder);

}  // namespace dslaunch::storage
