// The chat templates of a model's folder, with its special tokens, where Hugging Face's files keep
// them.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/chat_template/chat_template.h"

namespace dslaunch::text {

// The texts of a folder's files; none for one that is not there.
struct TemplateSources {
    std::optional<std::string> template_file;  // chat_template.jinja
    // additional_chat_templates/NAME.jinja
    std::vector<std::pair<std::string, std::string>> more_files;
    std::optional<std::string> tokenizer_config;  // tokenizer_config.json
    std::optional<std::string> template_json;     // chat_template.json
    std::optional<std::string> special_tokens;    // special_tokens_map.json
};

// Returns the special token NAME, as "eos_token", of FOLDER's tokenizer_config.json or
// special_tokens_map.json. Throws Error kInput. Blocks for the disk.
[[nodiscard]] std::optional<std::string> special_token_of(const std::string& folder,
                                                          std::string_view name);

class ChatTemplates {
  public:
    // Parses SOURCES. FOLDER stands in messages. Nothing: the model has no template. Throws Error
    // kInput: a file is not what it should be, or a template has a mistake.
    [[nodiscard]] static std::optional<ChatTemplates> parse(const std::string& folder,
                                                            const TemplateSources& sources);
    // Does the same with the files in FOLDER. Throws Error kInput too. Blocks for the disk.
    [[nodiscard]] static std::optional<ChatTemplates> read(const std::string& folder);

    // Returns the template NAME; without one "tool_use" for a conversation with tools, else
    // "default", and the only one whatever its name. Throws Error kInput when there is none.
    [[nodiscard]] const ChatTemplate& choose(bool with_tools, const std::string& name = "") const;
    [[nodiscard]] std::vector<std::string> names() const;

  private:
    ChatTemplates() = default;
    std::string folder_;
    std::vector<std::pair<std::string, ChatTemplate>> templates_;
};

}  // namespace dslaunch::text
