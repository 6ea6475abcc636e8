// The conversion of a template's text to tokens, with Jinja2's rules for blanks around tags:
// `trim_blocks` and `lstrip_blocks` are on, and `-` and `+` at the ends of a tag are supported.
// text -> [tokens] -> syntax. Pure functions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "text/chat_template/values/values.h"

namespace dslaunch::text::jinja {

// A part of a template's text that the grammar does not divide further.
struct Token {
    // The kinds of tokens; keywords are names.
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

    // Return true if the token is the name NAME, or the operator OP.
    [[nodiscard]] bool is_name(std::string_view name) const {
        return type == Type::kName && text == name;
    }
    [[nodiscard]] bool is_operator(std::string_view op) const {
        return type == Type::kOperator && text == op;
    }
};

// Returns the tokens of SOURCE; the last one is kEnd. Throws LineFault. REQUIRES: valid UTF-8.
[[nodiscard]] std::vector<Token> tokens_of(std::string_view source);

// Returns a description of TOKEN for messages, such as "the name `x`" or "the end of the template".
[[nodiscard]] std::string describe(const Token& token);

}  // namespace dslaunch::text::jinja
