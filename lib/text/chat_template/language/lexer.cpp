#include "text/chat_template/language/lexer.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <iterator>

#include "base/text.h"
#include "text/chat_template/language/syntax.h"
#include "text/chat_template/values/letters.h"
#include "text/unicode/code_points.h"

namespace dslaunch::text::jinja {
namespace {

constexpr size_t kNoPlace = std::string_view::npos;
// The operators, the longest first.
constexpr std::string_view kOperators[] = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/",
                                           "*",  "%",  "~",  "[",  "]",  "(",  ")", "{", "}",
                                           ">",  "<",  "=",  ".",  ":",  "|",  ",", ";"};

constexpr bool begins_name(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

// Returns SOURCE with \n as every line end, and without the line end at the end of the text.
std::string with_plain_lines(std::string_view source) {
    std::string text;
    text.reserve(source.size());
    for (size_t i = 0; i < source.size(); ++i) {
        if (source[i] != '\r') {
            text += source[i];
            continue;
        }
        text += '\n';
        if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    }
    if (!text.empty() && text.back() == '\n') text.pop_back();
    return text;
}

// Reads the value of a string in quotes: supports Python's escapes, except octal numbers and names.
class LiteralReader {
  public:
    LiteralReader(std::string_view raw, int line) : raw_(raw), line_(line) {}

    std::string run() {
        while (at_ < raw_.size()) {
            if (raw_[at_] == '\\' && at_ + 1 < raw_.size()) {
                escape();
            } else {
                out_ += raw_[at_++];
            }
        }
        return std::move(out_);
    }

  private:
    [[noreturn]] void stop(const char* message) const { throw LineFault(line_, message); }

    void escape() {
        const char c = raw_[at_ + 1];
        const size_t simple = std::string_view("abfnrtv\\'\"").find(c);
        if (simple != std::string_view::npos) {
            out_ += "\a\b\f\n\r\t\v\\'\""[simple];
            at_ += 2;
        } else if (c == '\n') {
            at_ += 2;
        } else if (c == 'x' || c == 'u' || c == 'U') {
            at_ += 2;
            hexadecimal(c == 'x' ? 2 : c == 'u' ? 4 : 8);
        } else if (is_digit(c) || c == 'N' || static_cast<unsigned char>(c) >= 0x80) {
            stop(
                "this escape sequence is not supported: write the character itself, or \\u and 4 "
                "hexadecimal digits");
        } else {
            out_ += raw_[at_++];
        }
    }

    void hexadecimal(size_t digits) {
        uint32_t point = 0;
        const std::string_view written = raw_.substr(at_, digits);
        const auto read =
            std::from_chars(written.data(), written.data() + written.size(), point, 16);
        if (written.size() < digits || read.ptr != written.data() + digits)
            stop("an escape sequence has too few digits");
        if (point > 0x10FFFF) stop("an escape sequence is not a valid character");
        if (point >= 0xD800 && point <= 0xDFFF)
            stop(
                "an escape sequence is only half of a surrogate pair: write the character itself, "
                "or \\U and 8 digits");
        append_utf8(out_, point);
        at_ += digits;
    }

    std::string_view raw_;
    int line_;
    size_t at_ = 0;
    std::string out_;
};

class Lexer {
  public:
    explicit Lexer(std::string_view source) : text_(source) {}

    std::vector<Token> run() {
        while (at_ < text_.size()) outside();
        add(Token::Type::kEnd, "");
        return std::move(tokens_);
    }

  private:
    [[nodiscard]] bool has(size_t at, std::string_view word) const {
        return text_.substr(std::min(at, text_.size()), word.size()) == word;
    }
    [[nodiscard]] char char_at(size_t at) const { return at < text_.size() ? text_[at] : '\0'; }
    [[nodiscard]] static bool is_sign(char c) { return c == '-' || c == '+'; }

    [[nodiscard]] size_t past_blanks(size_t at) const {
        while (at < text_.size() && is_space_point(point_at(text_, at)))
            at += point_bytes(text_[at]);
        return at;
    }

    [[noreturn]] void stop(const std::string& message) const { throw LineFault(line_, message); }

    void add(Token::Type type, std::string_view text) {
        tokens_.push_back({type, line_, std::string(text), {}});
    }

    // Moves the position to TO.
    void go(size_t to) {
        line_ += int(std::count(text_.begin() + long(at_), text_.begin() + long(to), '\n'));
        if (to > at_) begins_line_ = text_[to - 1] == '\n';
        at_ = to;
    }

    // Checks whether MARK is at AT. MARK closes a tag, for example "%}". Returns where the text
    // after the tag begins, or kNoPlace if MARK is not there. With LINE_END, a line end after MARK
    // belongs to the tag.
    [[nodiscard]] size_t past_closing(size_t at, std::string_view mark, bool line_end,
                                      bool plus = true) const {
        if (has(at, "-") && has(at + 1, mark)) return past_blanks(at + 1 + mark.size());
        if (plus && has(at, "+") && has(at + 1, mark)) return at + 1 + mark.size();
        if (!has(at, mark)) return kNoPlace;
        at += mark.size();
        return line_end && char_at(at) == '\n' ? at + 1 : at;
    }

    // Checks whether the tag `{% WORD %}` begins at AT. Returns where the text after the tag
    // begins, or kNoPlace if another tag is there.
    [[nodiscard]] size_t past_word_tag(size_t at, std::string_view word) const {
        at += 2;
        if (is_sign(char_at(at))) ++at;
        at = past_blanks(at);
        if (!has(at, word)) return kNoPlace;
        at = past_blanks(at + word.size());
        const bool is_end = word == "endraw";
        return past_closing(at, "%}", is_end, is_end);
    }

    // Adds the data between the current position and TAG, the offset at which a tag or comment
    // begins. SIGN is the character after the tag's opening mark; it says which blanks the tag
    // removes.
    void add_data(size_t tag, char sign, bool strips) {
        std::string_view data = text_.substr(at_, tag - at_);
        if (sign == '-') {
            data = strip_blanks(data, {.left = false, .right = true});
        } else if (sign != '+' && strips) {
            const size_t line_begin = data.rfind('\n') + 1;  // npos + 1 is 0
            const std::string_view blanks = data.substr(line_begin);
            if ((line_begin > 0 || begins_line_) && strip_blanks(blanks).empty())
                data = data.substr(0, line_begin);
        }
        if (!data.empty()) add(Token::Type::kData, data);
        go(tag);
    }

    void outside() {
        size_t tag = at_;
        for (;; ++tag) {
            tag = text_.find('{', tag);
            if (tag == kNoPlace || tag + 1 >= text_.size()) {
                add(Token::Type::kData, text_.substr(at_));
                return go(text_.size());
            }
            const char kind = text_[tag + 1];
            if (kind == '{' || kind == '%' || kind == '#') break;
        }
        const char kind = text_[tag + 1];
        const char sign = is_sign(char_at(tag + 2)) ? text_[tag + 2] : '\0';
        add_data(tag, sign, kind != '{');
        const size_t inside = tag + (sign == '\0' ? 2 : 3);
        if (kind == '#') return comment(inside);
        if (kind == '{') {
            add(Token::Type::kVariableBegin, "");
            go(inside);
            return tag_contents(false);
        }
        if (const size_t raw = past_word_tag(tag, "raw"); raw != kNoPlace) return raw_block(raw);
        add(Token::Type::kBlockBegin, "");
        go(inside);
        tag_contents(true);
    }

    void comment(size_t inside) {
        for (size_t at = inside; at < text_.size(); ++at) {
            const size_t end = past_closing(at, "#}", true);
            if (end != kNoPlace) return go(end);
        }
        stop("the comment that begins here has no `#}`");
    }

    void raw_block(size_t inside) {
        const int begin_line = line_;
        go(inside);
        for (size_t at = inside; (at = text_.find("{%", at)) != kNoPlace; ++at) {
            const size_t end = past_word_tag(at, "endraw");
            if (end == kNoPlace) continue;
            add_data(at, is_sign(char_at(at + 2)) ? text_[at + 2] : '\0', true);
            return go(end);
        }
        line_ = begin_line;
        stop("the `{% raw %}` that begins here has no `{% endraw %}`");
    }

    void tag_contents(bool is_block) {
        const int begin_line = line_;
        std::string open;
        while (at_ < text_.size()) {
            if (open.empty()) {
                const size_t end = is_block ? past_closing(at_, "%}", true)
                                            : past_closing(at_, "}}", false, false);
                if (end != kNoPlace) {
                    add(is_block ? Token::Type::kBlockEnd : Token::Type::kVariableEnd, "");
                    return go(end);
                }
            }
            one_token(open);
        }
        line_ = begin_line;
        stop(is_block ? "the tag that begins here has no `%}`"
                      : "the expression that begins here has no `}}`");
    }

    void one_token(std::string& open) {
        if (const size_t past = past_blanks(at_); past != at_) return go(past);
        const char c = text_[at_];
        if (is_digit(c)) return number();
        if (begins_name(c)) {
            size_t end = at_;
            while (begins_name(char_at(end)) || is_digit(char_at(end))) ++end;
            add(Token::Type::kName, text_.substr(at_, end - at_));
            return go(end);
        }
        if (c == '"' || c == '\'') return quoted(c);
        for (const std::string_view op : kOperators) {
            if (!has(at_, op)) continue;
            balance(open, op[0]);
            add(Token::Type::kOperator, op);
            return go(at_ + op.size());
        }
        stop(fmt::format("`{}` is not allowed in a tag{}",
                         printable(text_.substr(at_, point_bytes(c))),
                         static_cast<unsigned char>(c) < 0x80
                             ? ""
                             : ": names must be ASCII, and strings must be in quotes"));
    }

    void balance(std::string& open, char bracket) {
        constexpr std::string_view kOpening = "([{";
        constexpr std::string_view kClosing = ")]}";
        if (const size_t i = kOpening.find(bracket); i != kNoPlace) open += kClosing[i];
        if (kClosing.find(bracket) == kNoPlace) return;
        if (open.empty()) stop(fmt::format("`{}` has no opening bracket", bracket));
        if (open.back() != bracket)
            stop(fmt::format("expected `{1}`, found `{0}`", bracket, open.back()));
        open.pop_back();
    }

    void quoted(char quote) {
        size_t end = at_ + 1;
        while (end < text_.size() && text_[end] != quote) end += text_[end] == '\\' ? 2 : 1;
        if (end >= text_.size()) stop("the string that begins here has no closing quote");
        add(Token::Type::kText, LiteralReader(text_.substr(at_ + 1, end - at_ - 1), line_).run());
        go(end + 1);
    }

    [[nodiscard]] Value real_of(const std::string& digits) const {
        double number = 0.0;
        if (std::from_chars(digits.data(), digits.data() + digits.size(), number).ec != std::errc())
            stop("the number is too large or too small");
        return Value::real(number);
    }

    [[nodiscard]] Value whole_of(const std::string& digits) const {
        try {
            return new_integer(nullptr, digits);
        } catch (const Fault& fault) {
            stop(fault.what());
        }
    }

    void number() {
        const auto past_digits = [&](size_t at) {
            while (is_digit(char_at(at))) ++at;
            return at;
        };
        size_t end = past_digits(at_);
        bool is_float = false;
        const bool is_index = at_ > 0 && text_[at_ - 1] == '.';  // as in `list.0`
        if (!is_index && char_at(end) == '.' && is_digit(char_at(end + 1))) {
            end = past_digits(end + 1);
            is_float = true;
        }
        const size_t exponent = end + (is_sign(char_at(end + 1)) ? 2 : 1);
        if (!is_index && (char_at(end) | 0x20) == 'e' && is_digit(char_at(exponent))) {
            end = past_digits(exponent);
            is_float = true;
        }
        const std::string digits(text_.substr(at_, end - at_));
        const bool has_base = digits == "0" && std::string_view("xob").find(char_at(end) | 0x20) !=
                                                   std::string_view::npos;
        if (has_base || char_at(end) == '_' || (digits[0] == '0' && digits.size() > 1 && !is_float))
            stop("only numbers in decimal digits are supported");
        add(Token::Type::kNumber, digits);
        tokens_.back().number = is_float ? real_of(digits) : whole_of(digits);
        go(end);
    }

    std::string_view text_;
    size_t at_ = 0;
    int line_ = 1;
    bool begins_line_ = true;
    std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> tokens_of(std::string_view source) {
    const std::string text = with_plain_lines(source);
    return Lexer(text).run();
}

std::string describe(const Token& token) {
    constexpr const char* kTypes[] = {"text outside of tags", "`{{`", "`}}`", "`{%`", "`%}`"};
    const auto type = static_cast<size_t>(token.type);
    if (type < std::size(kTypes)) return kTypes[type];
    if (token.type == Token::Type::kText) return "a quoted string";
    if (token.type == Token::Type::kEnd) return "the end of the template";
    return fmt::format("`{}`", token.text);
}

}  // namespace dslaunch::text::jinja
