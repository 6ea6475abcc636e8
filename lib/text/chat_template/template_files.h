// The chat templates and the special tokens of a model. They are read from the same files of the
// model's folder as in Hugging Face's libraries.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/chat_template/chat_template.h"

namespace dslaunch::text {

// The contents of a folder's files; not set if the file does not exist.
struct TemplateSources {
    std::optional<std::string> template_file;  // chat_template.jinja
    // The NAME and the content of each additional_chat_templates/NAME.jinja.
    std::vector<std::pair<std::string, std::string>> more_files;
    std::optional<std::string> tokenizer_config;  // tokenizer_config.json
    std::optional<std::string> template_json;     // chat_template.json
    std::optional<std::string> special_tokens;    // special_tokens_map.json
};

// Returns the special token NAME, such as "eos_token", from FOLDER's tokenizer_config.json or
// special_tokens_map.json. Throws Error{kInput}. Blocks for the disk.
[[nodiscard]] std::optional<std::string> special_token_of(const std::string& folder,
                                                          std::string_view name);

// The templates of one model, at least one. Immutable.
class ChatTemplates {
  public:
    // Parses SOURCES. FOLDER appears in messages. Returns nothing if the model has no template.
    // Throws Error{kInput} if a file does not have the expected form, or if a template has a
    // mistake.
    [[nodiscard]] static std::optional<ChatTemplates> parse(const std::string& folder,
                                                            const TemplateSources& sources);
    // Reads the files in FOLDER and calls parse(). Throws the errors of parse(). Blocks for the
    // disk.
    [[nodiscard]] static std::optional<ChatTemplates> read(const std::string& folder);

    // Returns the template NAME. If NAME is empty, returns the first that exists: "tool_use" for a
    // conversation with tools, "default", or the only template, whatever its name is. Throws
    // Error{kInput} if there is no such template.
    [[nodiscard]] const ChatTemplate& choose(bool with_tools, const std::string& name = "") const;
    // Returns the names of all templates.
    [[nodiscard]] std::vector<std::string> names() const;

  private:
    ChatTemplates() = default;
    std::string folder_;
    std::vector<std::pair<std::string, ChatTemplate>> templates_;
};

}  // namespace dslaunch::text
