#include "base/text/words.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"

namespace dslaunch {

std::optional<std::vector<std::string>> split_words(std::string_view text, Comments comments) {
    const auto is_blank = [](char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; };
    std::vector<std::string> words;
    size_t at = 0;
    for (;;) {
        while (at < text.size() && is_blank(text[at])) ++at;
        if (at == text.size()) return words;
        if (text[at] == '#' && comments == Comments::kEndTheLine) return words;
        std::string word;
        char quote = 0;
        for (; at < text.size(); ++at) {
            const char c = text[at];
            const char next = at + 1 < text.size() ? text[at + 1] : '\0';
            if (c == '\\' &&
                (next == '"' || next == '\'' || next == '\\' || (quote == 0 && next == ' '))) {
                word += next;
                ++at;
            } else if (quote == 0 && is_blank(c)) {
                break;
            } else if (quote == 0 && (c == '"' || c == '\'')) {
                quote = c;
            } else if (quote != 0 && c == quote) {
                quote = 0;
            } else {
                word += c;
            }
        }
        if (quote != 0) return std::nullopt;
        words.push_back(std::move(word));
    }
}

std::string shell_word(const std::string& word) {
    constexpr std::string_view kPlain =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-/=:,+@%";
    if (!word.empty() && word.find_first_not_of(kPlain) == std::string::npos) return word;
    const auto is_control = [](unsigned char c) { return c < 0x20 || c == 0x7f; };
    if (std::ranges::any_of(word, is_control)) {  // $'..' of bash, zsh and newer sh
        std::string text = "$'";
        for (const char c : word)
            text += is_control(static_cast<unsigned char>(c))
                        ? fmt::format("\\{:03o}", static_cast<unsigned char>(c))
                    : c == '\'' || c == '\\' ? std::string{'\\', c}
                                             : std::string(1, c);
        return printable(text + "'");
    }
    std::string text = "'";
    for (const char c : word) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
    return printable(text + "'");
}

}  // namespace dslaunch
