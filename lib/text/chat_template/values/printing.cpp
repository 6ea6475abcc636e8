#include "text/chat_template/values/printing.h"

#include "text/chat_template/values/letters.h"
#include "text/chat_template/values/points.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>

namespace dslaunch::text::jinja {
namespace {

void append_elements(Meter& meter, std::string& out, const Values& items) {
    for (size_t i = 0; i < items.size(); ++i) {
        if (i > 0) out += ", ";
        append_repr(meter, out, items[i]);
    }
}

void append_entries(Meter& meter, std::string& out, const Dict& dict) {
    out += '{';
    bool first = true;
    for (const auto& [key, value] : dict.entries) {
        if (!first) out += ", ";
        first = false;
        append_repr(meter, out, key);
        out += ": ";
        append_repr(meter, out, value);
    }
    out += '}';
}

void append_view(Meter& meter, std::string& out, const Value& value) {
    const View::What what = value.as<View>().what;
    out += what == View::What::kKeys     ? "dict_keys(["
           : what == View::What::kValues ? "dict_values(["
                                         : "dict_items([";
    append_elements(meter, out, all_of(meter, value));
    out += "])";
}

void append_range(std::string& out, const Range& range) {
    out += fmt::format("range({}, {}", range.start, range.stop);
    if (range.step != 1) out += fmt::format(", {}", range.step);
    out += ')';
}

}  // namespace

std::string float_repr(double number) {
    if (std::isnan(number)) return "nan";
    if (std::isinf(number)) return number > 0 ? "inf" : "-inf";
    char buffer[40];
    const auto end =
        std::to_chars(buffer, buffer + sizeof buffer, number, std::chars_format::scientific).ptr;
    const std::string_view shortest(buffer, size_t(end - buffer));
    const size_t e = shortest.find('e');
    const bool negative = shortest[0] == '-';
    std::string digits(shortest.substr(negative, e - negative));
    if (digits.size() > 1) digits.erase(1, 1);
    int exponent = 0;
    const size_t sign = shortest[e + 1] == '+' ? 1 : 0;
    std::from_chars(shortest.data() + e + 1 + sign, shortest.data() + shortest.size(), exponent);
    std::string text = negative ? "-" : "";
    if (exponent < -4 || exponent >= 16) {
        text += digits[0];
        if (digits.size() > 1) text += "." + digits.substr(1);
        return text + fmt::format("e{}{:02}", exponent < 0 ? '-' : '+', std::abs(exponent));
    }
    if (exponent < 0) return text + "0." + std::string(size_t(-exponent - 1), '0') + digits;
    const size_t whole = size_t(exponent) + 1;
    if (digits.size() <= whole)
        return text + digits + std::string(whole - digits.size(), '0') + ".0";
    return text + digits.substr(0, whole) + "." + digits.substr(whole);
}

std::string quoted_repr(std::string_view text) {
    const bool has_single = text.find('\'') != std::string_view::npos;
    const char quote = has_single && text.find('"') == std::string_view::npos ? '"' : '\'';
    std::string out(1, quote);
    for (size_t i = 0; i < text.size();) {
        const size_t bytes = point_bytes(text[i]);
        const uint32_t point = point_at(text, i);
        if (text[i] == quote || text[i] == '\\') {
            out += '\\';
            out += text[i];
        } else if (text[i] == '\n') {
            out += "\\n";
        } else if (text[i] == '\r') {
            out += "\\r";
        } else if (text[i] == '\t') {
            out += "\\t";
        } else if (is_printable_point(point)) {
            out += text.substr(i, bytes);
        } else if (point < 0x100) {
            out += fmt::format("\\x{:02x}", point);
        } else {
            out +=
                point < 0x10000 ? fmt::format("\\u{:04x}", point) : fmt::format("\\U{:08x}", point);
        }
        i += bytes;
    }
    return out + quote;
}

void append_repr(Meter& meter, std::string& out, const Value& value) {
    meter.step();
    meter.check_bytes(out.size());
    switch (value.kind()) {
        case Kind::kText:
            meter.step_text(value.text().size());
            if (value.text_object().is_safe) {
                out += "Markup(" + quoted_repr(value.text()) + ")";
            } else {
                out += quoted_repr(value.text());
            }
            return;
        case Kind::kUndefined:
            out += "Undefined";
            return;
        case Kind::kList:
            out += '[';
            append_elements(meter, out, value.items());
            out += ']';
            return;
        case Kind::kTuple:
            out += '(';
            append_elements(meter, out, value.items());
            out += value.items().size() == 1 ? ",)" : ")";
            return;
        case Kind::kDict:
            return append_entries(meter, out, value.dict());
        case Kind::kView:
            return append_view(meter, out, value);
        case Kind::kRange:
            return append_range(out, value.as<Range>());
        default:
            return append_str(meter, out, value);
    }
}

void append_str(Meter& meter, std::string& out, const Value& value) {
    switch (value.kind()) {
        case Kind::kUndefined:
            return;
        case Kind::kNone:
            out += "None";
            return;
        case Kind::kBool:
            out += value.integral() != 0 ? "True" : "False";
            return;
        case Kind::kInt:
            out += fmt::format_int(value.integral()).c_str();
            return;
        case Kind::kLargeInt:
            out += value.text();
            return;
        case Kind::kFloat:
            out += float_repr(value.as_double());
            return;
        case Kind::kText:
            meter.step_text(value.text().size());
            meter.check_bytes(out.size() + value.text().size());
            out += value.text();
            return;
        case Kind::kNamespace:
        case Kind::kLoop:
        case Kind::kCycler:
        case Kind::kFunction:
        case Kind::kIterator:
            throw Fault("a " + type_name(value) +
                        " is printed: its text would be an address in Python's memory");
        default:
            return append_repr(meter, out, value);
    }
}

std::string str_of(Meter& meter, const Value& value) {
    std::string out;
    append_str(meter, out, value);
    return out;
}

}  // namespace dslaunch::text::jinja
