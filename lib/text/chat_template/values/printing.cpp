#include "text/chat_template/values/printing.h"

#include <fmt/format.h>

#include "text/chat_template/values/letters.h"
#include "text/unicode/code_points.h"

namespace dslaunch::text::jinja {
namespace {

// Returns TEXT in quotes, as Python's repr writes it.
std::string quoted_repr(std::string_view text) {
    const bool has_single = text.find('\'') != std::string_view::npos;
    const char quote = has_single && text.find('"') == std::string_view::npos ? '"' : '\'';
    std::string out(1, quote);
    for (size_t begin = 0, end = 0; begin < text.size(); begin = end) {
        const uint32_t point = next_point(text, end);
        const size_t named = std::string_view("\n\r\t").find(text[begin]);
        if (text[begin] == quote || text[begin] == '\\') {
            out += {'\\', text[begin]};
        } else if (named != std::string_view::npos) {
            out += {'\\', "nrt"[named]};
        } else if (is_printable_point(point)) {
            out += text.substr(begin, end - begin);
        } else if (point < 0x100) {
            out += fmt::format("\\x{:02x}", point);
        } else {
            out +=
                point < 0x10000 ? fmt::format("\\u{:04x}", point) : fmt::format("\\U{:08x}", point);
        }
    }
    return out + quote;
}

void append_repr(Meter& meter, std::string& out, const Value& value) {
    meter.step();
    meter.check_bytes(out.size());
    if (value.is(ValueKind::kText)) {
        meter.step_text(value.text().size());
        const std::string quoted = quoted_repr(value.text());
        out += value.text_object().is_safe ? "Markup(" + quoted + ")" : quoted;
    } else if (value.is(ValueKind::kUndefined)) {
        out += "Undefined";
    } else {
        append_str(meter, out, value);
    }
}

void append_items(Meter& meter, std::string& out, const Values& items) {
    for (size_t i = 0; i < items.size(); ++i) {
        if (i > 0) out += ", ";
        append_repr(meter, out, items[i]);
    }
}

void append_entries(Meter& meter, std::string& out, const Dict& dict) {
    out += '{';
    for (size_t i = 0; i < dict.entries.size(); ++i) {
        if (i > 0) out += ", ";
        append_repr(meter, out, dict.entries[i].first);
        out += ": ";
        append_repr(meter, out, dict.entries[i].second);
    }
    out += '}';
}

}  // namespace

std::string float_repr(double number) {
    std::string text = fmt::format("{}", number);
    if (text.find_first_of(".en") == std::string::npos) text += ".0";
    return text;
}

void append_str(Meter& meter, std::string& out, const Value& value) {
    switch (value.kind()) {
        case ValueKind::kUndefined:
            return;
        case ValueKind::kNone:
            out += "None";
            return;
        case ValueKind::kBool:
            out += value.integral() != 0 ? "True" : "False";
            return;
        case ValueKind::kInt:
            out += fmt::format_int(value.integral()).c_str();
            return;
        case ValueKind::kFloat:
            out += float_repr(value.as_double());
            return;
        case ValueKind::kLargeInt:
        case ValueKind::kText:
            meter.step_text(value.text().size());
            meter.check_bytes(out.size() + value.text().size());
            out += value.text();
            return;
        case ValueKind::kList:
            out += '[';
            append_items(meter, out, value.items());
            out += ']';
            return;
        case ValueKind::kTuple:
            out += '(';
            append_items(meter, out, value.items());
            out += value.items().size() == 1 ? ",)" : ")";
            return;
        case ValueKind::kDict:
            return append_entries(meter, out, value.dict());
        case ValueKind::kRange:
        case ValueKind::kView:
            throw Fault(fmt::format("a {} cannot be printed: put the filter `list` after it",
                                    type_name(value)));
        default:
            throw Fault(fmt::format(
                "a {} cannot be printed: its text would be an address in Python's memory",
                type_name(value)));
    }
}

std::string str_of(Meter& meter, const Value& value) {
    std::string out;
    append_str(meter, out, value);
    return out;
}

}  // namespace dslaunch::text::jinja
