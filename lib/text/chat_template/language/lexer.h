// A template's text as tokens, with Jinja2's rules for blanks around tags: `trim_blocks` and
// `lstrip_blocks` on, `-` and `+` at a tag's ends. text -> [tokens] -> syntax. Pure functions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "text/chat_template/values/value.h"

namespace dslaunch::text::jinja {

struct Token {
    enum class Type : uint8_t {
        kData,  // text outside of tags
        kVariableBegin,
        kVariableEnd,
        kBlockBegin,
        kBlockEnd,
        kName,
        kText,
        kNumber,
        kOperator,
        kEnd,
    };
    Type type = Type::kEnd;
    int line = 1;
    std::string text;  // kText: without quotes and escapes
    Value number;

    [[nodiscard]] bool is_name(std::string_view name) const {
        return type == Type::kName && text == name;
    }
    [[nodiscard]] bool is_operator(std::string_view op) const {
        return type == Type::kOperator && text == op;
    }
};

// Returns the tokens of SOURCE, kEnd last. Throws LineFault. REQUIRES: valid UTF-8.
[[nodiscard]] std::vector<Token> tokens_of(std::string_view source);

// Returns "the name `x`" or "the end of the template": for messages.
[[nodiscard]] std::string describe(const Token& token);

}  // namespace dslaunch::text::jinja
