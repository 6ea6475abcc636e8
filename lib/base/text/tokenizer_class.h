// Changes a tokenizer.json as transformers does when it loads the folder. The folder's other files
// name a class of transformers. Some classes decide whether a blank is put in front of a text, and
// all classes recognize the tokens that tokenizer_config.json names. Source: AutoTokenizer of
// transformers 5.23. Data path: folder -> [here] -> text/tokenizer, storage/gguf_model. Pure.
#pragma once

#include <nlohmann/json.hpp>

namespace dslaunch {

// The JSON of a folder's files; null if a file does not exist.
struct TokenizerClassFiles {
    nlohmann::json tokenizer_config;  // tokenizer_config.json
    nlohmann::json config;            // config.json, the model's
};

// Changes TOKENIZER, the content of a tokenizer.json, as transformers does when it loads the file.
// TOKENIZER may be any JSON, even if it is not a tokenizer.
void apply_tokenizer_class(const TokenizerClassFiles& files, nlohmann::json& tokenizer);

}  // namespace dslaunch
