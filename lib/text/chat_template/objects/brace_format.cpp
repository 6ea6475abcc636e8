#include "text/chat_template/objects/brace_format.h"

#include "text/chat_template/values/number_format.h"
#include "text/chat_template/values/printing.h"

#include "base/text.h"

#include <fmt/format.h>

#include <algorithm>

namespace dslaunch::text::jinja {
namespace {

class BraceFormatter {
  public:
    BraceFormatter(Runtime& runtime, const Arguments& arguments)
        : runtime_(runtime), arguments_(arguments) {}

    // LEVELS: how often a format may stand in a format's field.
    std::string run(std::string_view format, int levels) {
        if (levels < 0) throw Fault("formats stand too deep in each other");
        std::string out;
        for (size_t at = 0; at < format.size();) {
            const char c = format[at];
            if (c != '{' && c != '}') {
                const size_t end = std::min(format.find_first_of("{}", at), format.size());
                out += format.substr(at, end - at);
                at = end;
            } else if (at + 1 < format.size() && format[at + 1] == c) {
                out += c;
                at += 2;
            } else if (c == '}') {
                throw Fault("a `}` of the format closes nothing: write `}}` for one");
            } else {
                out += field(format, at, levels);
            }
            runtime_.meter().step_text(out.size());
            runtime_.meter().check_bytes(out.size());
        }
        return out;
    }

  private:
    // The field that begins with the `{` at AT, which moves behind it.
    std::string field(std::string_view format, size_t& at, int levels) {
        size_t end = at + 1;
        for (int open = 1; open > 0; ++end) {
            if (end >= format.size()) throw Fault("a `{` of the format has no `}`");
            if (format[end] == '{') ++open;
            if (format[end] == '}') --open;
        }
        const std::string_view inside = format.substr(at + 1, end - at - 2);
        at = end;
        const size_t name_end = std::min(inside.find_first_of(":!"), inside.size());
        Value value = named(inside.substr(0, name_end));
        std::string_view rest = inside.substr(name_end);
        if (rest.starts_with('!')) {
            if (rest.size() < 2 || (rest.size() > 2 && rest[2] != ':'))
                throw Fault("a `!` of the format has no letter behind it");
            value = converted(value, rest[1]);
            rest.remove_prefix(2);
        }
        if (rest.starts_with(':')) rest.remove_prefix(1);
        const std::string spec = run(rest, levels - 1);
        if (spec.empty()) return str_of(runtime_.meter(), value);
        return format_field(runtime_.meter(), parse_field(spec), value);
    }

    Value converted(const Value& value, char how) {
        std::string text;
        if (how == 's') {
            append_str(runtime_.meter(), text, value);
        } else if (how == 'r') {
            append_repr(runtime_.meter(), text, value);
        } else {
            throw Fault("only `!s` and `!r` are supported in a format");
        }
        return new_text(&runtime_.meter(), std::move(text));
    }

    Value named(std::string_view name) {
        if (name.find_first_of(".[") != std::string_view::npos)
            throw Fault("a field of the format asks for a part of a value: not supported");
        const auto number = name.size() < 10 ? parse_int(name) : std::nullopt;
        const bool is_place = name.empty() || (number && *number >= 0);
        if (is_place) {
            const bool is_counted = name.empty();
            if (is_counted ? numbered_ : next_ > 0)
                throw Fault("the format mixes `{}` and fields with numbers");
            if (!is_counted) numbered_ = true;
            const size_t place = is_counted ? next_++ : size_t(*number);
            if (place >= arguments_.positional.size())
                throw Fault("the format asks for more values than there are");
            return arguments_.positional[place];
        }
        for (const auto& [other, value] : arguments_.named)
            if (other == name) return value;
        throw Fault(fmt::format("the format asks for '{}'", name));
    }

    Runtime& runtime_;
    const Arguments& arguments_;
    size_t next_ = 0;
    bool numbered_ = false;
};

}  // namespace

std::string brace_format(Runtime& runtime, std::string_view format, const Arguments& arguments) {
    return BraceFormatter(runtime, arguments).run(format, 2);
}

}  // namespace dslaunch::text::jinja
