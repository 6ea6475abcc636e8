#include "text/chat_template/language/text_literal.h"

#include "text/chat_template/language/syntax_fault.h"
#include "text/chat_template/values/points.h"

#include <fmt/format.h>

namespace dslaunch::text::jinja {
namespace {

int hex_digit_value(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

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
    void hexadecimal(size_t digits) {
        uint32_t point = 0;
        for (size_t i = 0; i < digits; ++i) {
            const int digit = at_ < raw_.size() ? hex_digit_value(raw_[at_]) : -1;
            if (digit < 0) throw SyntaxFault(line_, "an escape of a text has too few digits");
            point = point * 16 + uint32_t(digit);
            ++at_;
        }
        append(point);
    }

    void append(uint32_t point) {
        if (point > 0x10FFFF) throw SyntaxFault(line_, "an escape of a text is no character");
        if (point >= 0xD800 && point <= 0xDFFF) {
            throw SyntaxFault(line_,
                              "an escape of a text is half a pair of surrogates: write the "
                              "character itself, or \\U and 8 digits");
        }
        append_point(out_, point);
    }

    void octal() {
        uint32_t point = 0;
        for (int i = 0; i < 3 && at_ < raw_.size() && raw_[at_] >= '0' && raw_[at_] <= '7'; ++i)
            point = point * 8 + uint32_t(raw_[at_++] - '0');
        append(point);
    }

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
        } else if (c >= '0' && c <= '7') {
            ++at_;
            octal();
        } else if (c == 'N') {
            throw SyntaxFault(line_, "the escape \\N{…} is not supported: write the character");
        } else if (static_cast<unsigned char>(c) >= 0x80) {
            // Jinja2 writes the character as an escape, whose backslash the one before takes.
            const uint32_t point = point_at(raw_, at_ + 1);
            out_ += point < 0x100     ? fmt::format("\\x{:02x}", point)
                    : point < 0x10000 ? fmt::format("\\u{:04x}", point)
                                      : fmt::format("\\U{:08x}", point);
            at_ += 1 + point_bytes(c);
        } else {
            out_ += '\\';
            ++at_;
        }
    }

    std::string_view raw_;
    int line_;
    size_t at_ = 0;
    std::string out_;
};

}  // namespace

std::string text_of_literal(std::string_view raw, int line) {
    return LiteralReader(raw, line).run();
}

}  // namespace dslaunch::text::jinja
