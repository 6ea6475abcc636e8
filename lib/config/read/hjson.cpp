#include "config/read/tree_builder.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <string>
#include <vector>

#include "base/text.h"
#include "config/read/quoteless.h"

namespace dslaunch::config {
namespace {

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
constexpr size_t kNowhere = std::string_view::npos;

class HjsonReader {
  public:
    HjsonReader(std::string_view text, TreeBuilder& tree) : text_(text), tree_(tree) {}

    void read() {
        for (size_t i = 0; i < text_.size();) {
            const size_t length = utf8_length(text_, i);
            if (length == 0) stop(i, "a byte that is not UTF-8: save the file as UTF-8");
            i += length;
        }
        skip();
        if (at_end()) return;
        if (text_[at_] == '{' || text_[at_] == '[') {
            value("a value ", at_);
        } else if (!lone_value()) {
            tree_.open(Value::Kind::kObject, place(at_));
            members(kNowhere);
            tree_.close();
        }
        skip();
        if (!at_end()) stop(at_, closes_nothing() + "more text after the end of the config");
    }

  private:
    [[nodiscard]] bool at_end() const { return at_ >= text_.size(); }
    [[nodiscard]] char next(size_t offset = 0) const {
        return at_ + offset < text_.size() ? text_[at_ + offset] : '\0';
    }

    [[nodiscard]] TextPlace place(size_t at) {
        if (at < counted_) {
            counted_ = line_begin_ = 0;
            line_ = 1;
        }
        for (; counted_ < at; ++counted_) {
            if (text_[counted_] != '\n') continue;
            line_begin_ = counted_ + 1;
            ++line_;
        }
        return {line_, int64_t(at - line_begin_) + 1};
    }

    [[noreturn]] void stop(size_t at, const std::string& message) {
        throw StopReading{Problem{"", "not valid JSON: " + message, tree_.origin(place(at))}};
    }

    [[nodiscard]] std::string closes_nothing() const {
        if (next() == '}') return "`}` closes no `{`: ";
        return next() == ']' ? "`]` closes no `[`: " : "";
    }

    // Skips blanks and comments.
    void skip() {
        while (!at_end()) {
            if (std::string_view(" \t\r\n").find(text_[at_]) != kNowhere) {
                ++at_;
            } else if (next() == '#' || text_.substr(at_, 2) == "//") {
                at_ = std::min(text_.find_first_of("\r\n", at_), text_.size());
            } else if (text_.substr(at_, 2) == "/*") {
                const size_t end = text_.find("*/", at_ + 2);
                if (end == kNowhere) stop(at_, "the comment that begins here has no `*/`");
                at_ = end + 2;
            } else {
                return;
            }
        }
    }

    // Reads one value that is not an object and is the whole text, such as `3` or `"abc"`. Returns
    // false and reads nothing if there is no such value.
    bool lone_value() {
        const size_t begin = at_;
        const bool quoted = next() == '"';
        const size_t end = std::min(text_.find_first_of(" \t\r\n#/,", at_), text_.size());
        const auto literal = json_literal(text_.substr(at_, end - at_));
        std::string text;
        if (quoted)
            text = string();
        else if (literal)
            at_ = end;
        skip();
        if (at_end() && (quoted || literal)) {
            tree_.add(literal ? *literal : make_value(std::move(text)), place(begin));
            return true;
        }
        at_ = begin;
        return false;
    }

    // Reads the members of an object. OPENER: the place of its `{`, or kNowhere for an object
    // without braces, which extends to the end of the text.
    void members(size_t opener) {
        for (;;) {
            skip();
            if (at_end() && opener == kNowhere) return;
            if (at_end()) never_closed(opener);
            if (opener != kNowhere && next() == '}') return close(opener);
            if (opener != kNowhere && next() == ']') wrong_bracket(opener);
            const size_t begin = at_;
            const std::string name = key();
            skip();
            if (next() != ':') stop(at_, "a `:` is missing after the key " + shown(name));
            tree_.take_key(name, place(begin));
            const size_t colon = at_++;
            value(fmt::format("the value of {} ", shown(name)), colon);
            skip();
            if (next() == ',') ++at_;
        }
    }

    void elements(size_t opener) {
        for (;;) {
            skip();
            if (at_end()) never_closed(opener);
            if (next() == ']') return close(opener);
            if (next() == '}') wrong_bracket(opener);
            value("a value ", at_);
            skip();
            if (next() == ',') ++at_;
        }
    }

    void open(Value::Kind kind) {
        if (++depth_ > kConfigDepthMax) {
            throw StopReading{Problem{"",
                                      fmt::format("nested deeper than {} levels", kConfigDepthMax),
                                      tree_.origin(place(at_))}};
        }
        tree_.open(kind, place(at_));
        const size_t opener = at_++;
        kind == Value::Kind::kObject ? members(opener) : elements(opener);
        tree_.close();
        --depth_;
    }

    // Returns the indentation of the line that contains AT.
    [[nodiscard]] size_t indent(size_t at) const {
        const size_t line_begin = at == 0 ? 0 : text_.rfind('\n', at - 1) + 1;  // npos + 1 is 0
        return std::min(text_.find_first_not_of(" \t", line_begin), at) - line_begin;
    }

    void close(size_t opener) {
        const bool first_of_line = text_[text_.find_last_not_of(" \t", at_ - 1)] == '\n';
        if (first_of_line && indent(at_) < indent(opener) && left_.first == kNowhere)
            left_ = {opener, at_};
        ++at_;
    }

    // Reports that the bracket at OPENER is never closed. If left_ is set, reports the opening
    // bracket in left_ instead: its closing bracket was probably meant for a different opening
    // bracket.
    [[noreturn]] void never_closed(size_t opener) {
        if (left_.first == kNowhere)
            stop(opener, fmt::format("the `{}` is never closed", text_[opener]));
        const TextPlace closer = place(left_.second);
        stop(left_.first,
             fmt::format("the `{}` is not closed: the `{}` of line {}, column {} probably belongs "
                         "to another bracket",
                         text_[left_.first], text_[left_.second], closer.line, closer.column));
    }

    [[noreturn]] void wrong_bracket(size_t opener) {
        const TextPlace open = place(opener);
        stop(at_,
             fmt::format("found `{}` before the `{}` that closes the `{}` of line {}, column {}",
                         next(), text_[opener] == '{' ? '}' : ']', text_[opener], open.line,
                         open.column));
    }

    std::string key() {
        if (next() == '"' || next() == '\'') return string();
        const size_t begin = at_;
        at_ = std::min(text_.find_first_of("{}[],: \t\r\n", begin), text_.size());
        const std::string_view name = text_.substr(begin, at_ - begin);
        if (name.empty()) {
            stop(begin,
                 fmt::format("{}found `{}` where a key is expected{}", closes_nothing(), next(),
                             next() == ':' ? ": is the value before it missing?" : ""));
        }
        if (const auto mistake = key_mistake(name)) stop(begin + mistake->at, mistake->message);
        return std::string(name);
    }

    // Reads a value. WHAT: "the value of `key` ", for messages. BEFORE: the place of the key's
    // colon or, in a list, of the value.
    void value(const std::string& what, size_t before) {
        skip();
        if (at_end()) stop(before, what + "is missing");
        const size_t begin = at_;
        if (next() == '{') return open(Value::Kind::kObject);
        if (next() == '[') return open(Value::Kind::kList);
        if (std::string_view("}],:").find(next()) != kNowhere)
            stop(at_, fmt::format("found `{}` where {}is expected", next(), what));
        if (text_.substr(at_, 3) == "'''") return add(make_value(lines()), begin);
        if (next() == '"' || next() == '\'') return add(make_value(string()), begin);
        const bool below = text_.substr(before, begin - before).find('\n') != kNowhere;
        add(quoteless(below), begin);
    }

    void add(Value value, size_t begin) { tree_.add(std::move(value), place(begin)); }

    // Reads a value without quotes. A comma, a bracket or a comment may follow a number, true,
    // false or null. Any other text extends to the end of the line. BELOW is true if the value is
    // on a line below its key.
    Value quoteless(bool below) {
        const size_t begin = at_;
        const size_t end = std::min(text_.find_first_of(",}]#/\r\n", begin), text_.size());
        const std::string_view word = trim(text_.substr(begin, end - begin));
        if (const auto mistake = number_mistake(word)) tree_.stop(place(begin), *mistake);
        if (auto literal = json_literal(word)) {
            at_ = end;
            if (next() != '/' || next(1) == '/' || next(1) == '*') return *literal;
        }
        at_ = std::min(text_.find_first_of("\r\n", begin), text_.size());
        const std::string_view text = trim(text_.substr(begin, at_ - begin));
        if (const auto mistake = quoteless_mistake(text, below))
            stop(begin + mistake->at, mistake->message);
        return make_value(std::string(text));
    }

    std::string string() {
        const size_t begin = at_;
        const char quote = text_[at_++];
        std::string result;
        for (;;) {
            const size_t end = std::min(text_.find_first_of("\"'\\\r\n", at_), text_.size());
            for (; at_ < end; ++at_) {
                if (static_cast<unsigned char>(text_[at_]) < 0x20)
                    stop(at_, text_[at_] == '\t' ? "a tab in a string: write \\t"
                                                 : "a control character in a string");
                result += text_[at_];
            }
            if (at_end() || next() == '\n' || next() == '\r')
                stop(begin, "the string that begins here has no closing quote on its line");
            const char c = text_[at_++];
            if (c == quote) return result;
            if (c == '\\')
                escape(result);
            else
                result += c;
        }
    }

    // Reads the rest of an escape; at_ is after its backslash.
    void escape(std::string& result) {
        static constexpr std::string_view kLetters = "\"'\\/bfnrt", kMeanings = "\"'\\/\b\f\n\r\t";
        const size_t begin = at_ - 1;
        const char letter = next();
        ++at_;
        if (letter == 'u') return append_utf8(result, code_point(begin));
        const size_t known = kLetters.find(letter);
        if (known == kNowhere || letter == '\0')
            stop(begin, "this is not an escape of JSON: write \\\\ for a backslash");
        result += kMeanings[known];
    }

    // Reads the rest of a \u escape that begins at BEGIN; at_ is after its `\u`. A character beyond
    // U+FFFF is written as two \u escapes.
    uint32_t code_point(size_t begin) {
        const auto high = hex4(text_, at_);
        if (!high) stop(begin, "four hexadecimal digits are expected after \\u");
        at_ += 4;
        if (*high < 0xD800 || *high > 0xDFFF) return *high;
        const auto low = text_.substr(at_, 2) == "\\u" ? hex4(text_, at_ + 2) : std::nullopt;
        if (*high > 0xDBFF || !low || *low < 0xDC00 || *low > 0xDFFF)
            stop(begin,
                 "this \\u escape is only half of a character: characters beyond U+FFFF need two");
        at_ += 6;
        return 0x10000 + ((*high - 0xD800) << 10) + (*low - 0xDC00);
    }

    // Reads '''…'''. Each line loses the indentation of the opening quotes, and the text loses its
    // last line break.
    std::string lines() {
        const size_t begin = at_;
        const size_t line_begin = begin == 0 ? 0 : text_.rfind('\n', begin - 1) + 1;
        const auto letters = std::count_if(text_.begin() + line_begin, text_.begin() + begin,
                                           [](char c) { return (c & 0xC0) != 0x80; });
        const size_t end = text_.find("'''", begin + 3);
        if (end == kNowhere) stop(begin, "the text that begins here has no closing '''");
        at_ = std::min(text_.find_first_not_of(" \t\r", begin + 3), text_.size());
        std::string result;
        const auto break_line = [&] {
            ++at_;
            for (auto left = letters;
                 left > 0 && (next() == ' ' || next() == '\t' || next() == '\r'); --left)
                ++at_;
        };
        if (next() == '\n') break_line();
        while (at_ < end) {
            const char c = next();
            if (c != '\r') result += c;
            c == '\n' ? break_line() : void(++at_);
        }
        at_ = end + 3;
        if (result.ends_with('\n')) result.pop_back();
        return result;
    }

    std::string_view text_;
    TreeBuilder& tree_;
    size_t at_ = 0;
    int depth_ = 0;
    // The first pair of brackets whose closing bracket is indented less than the line with the
    // opening bracket. It is reported if a bracket is never closed.
    std::pair<size_t, size_t> left_{kNowhere, kNowhere};
    // The state of place(): the position up to which it has counted lines, and the line there.
    size_t counted_ = 0, line_begin_ = 0;
    int64_t line_ = 1;
};

}  // namespace

void read_hjson(std::string_view text, TreeBuilder& tree) {
    if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
    HjsonReader(text, tree).read();
}

std::optional<uint32_t> hex4(std::string_view text, size_t at) {
    if (at + 4 > text.size()) return {};
    uint32_t code = 0;
    const char* const digits = text.data() + at;
    const auto [end, status] = std::from_chars(digits, digits + 4, code, 16);
    if (status != std::errc() || end != digits + 4) return {};
    return code;
}

}  // namespace dslaunch::config
