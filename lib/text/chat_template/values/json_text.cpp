#include "text/chat_template/values/json_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "text/chat_template/values/compare.h"
#include "text/chat_template/values/printing.h"
#include "text/unicode/code_points.h"

namespace dslaunch::text::jinja {
namespace {

// Writes JSON as Python does. nlohmann's output lacks the blanks after separators, and its floats
// look different.
class PythonJson {
  public:
    PythonJson(Meter& meter, const JsonStyle& style) : meter_(meter), style_(style) {}

    std::string run(const Value& value) {
        write(value);
        return std::move(out_);
    }

  private:
    void write(const Value& value) {
        meter_.step();
        meter_.check_bytes(out_.size());
        if (value.is(ValueKind::kText)) {
            quote(value.text());
        } else if (value.is_sequence()) {
            write_all(value.items(), "[]", [&](const Value& item) { write(item); });
        } else if (value.is(ValueKind::kDict)) {
            write_entries(value.dict().entries);
        } else {
            out_ += word(value);
        }
    }

    // Returns the JSON text of none, a bool or a number. Throws Fault for all other values.
    std::string word(const Value& value) {
        if (value.is(ValueKind::kNone)) return "null";
        if (value.is(ValueKind::kBool)) return value.integral() != 0 ? "true" : "false";
        if (value.is(ValueKind::kInt) || value.is(ValueKind::kLargeInt))
            return str_of(meter_, value);
        if (value.is(ValueKind::kFloat)) {
            const double number = value.as_double();
            if (std::isnan(number)) return "NaN";
            if (std::isinf(number)) return number > 0 ? "Infinity" : "-Infinity";
            return float_repr(number);
        }
        const std::string name = value.undefined_name();
        throw Fault(
            name.empty()
                ? fmt::format("a value of type {} cannot be written as JSON", type_name(value))
                : fmt::format("'{}' is undefined and cannot be written as JSON", name));
    }

    void escape(uint32_t unit) { out_ += fmt::format("\\u{:04x}", unit); }

    void quote(std::string_view text) {
        meter_.step_text(text.size());
        out_ += '"';
        for (size_t begin = 0, end = 0; begin < text.size(); begin = end) {
            const uint32_t point = next_point(text, end);
            const size_t named = std::string_view("\"\\\n\r\t\f\b").find(text[begin]);
            if (named != std::string_view::npos) {
                out_ += {'\\', "\"\\nrtfb"[named]};
            } else if (point >= 0x20 && (point < 0x80 || !style_.is_ascii_only)) {
                out_ += text.substr(begin, end - begin);
            } else if (point < 0x10000) {
                escape(point);
            } else {
                escape(0xD800 + ((point - 0x10000) >> 10));
                escape(0xDC00 + ((point - 0x10000) & 0x3FF));
            }
        }
        out_ += '"';
    }

    void new_line() {
        if (!style_.indent) return;
        out_ += '\n';
        for (int i = 0; i < depth_; ++i) out_ += *style_.indent;
    }

    template <typename Items, typename Write>
    void write_all(const Items& items, const char* brackets, const Write& write_one) {
        out_ += brackets[0];
        ++depth_;
        for (size_t i = 0; i < items.size(); ++i) {
            if (i > 0) out_ += style_.item_separator;
            new_line();
            write_one(items[i]);
        }
        --depth_;
        if (!items.empty()) new_line();
        out_ += brackets[1];
    }

    void write_entries(std::vector<Entry> entries) {
        if (style_.sorts_keys) {
            std::ranges::stable_sort(entries, [&](const Entry& a, const Entry& b) {
                return std::is_lt(order_of(meter_, a.first, b.first));
            });
        }
        write_all(entries, "{}", [&](const Entry& entry) {
            quote(entry.first.is(ValueKind::kText) ? entry.first.text() : word(entry.first));
            out_ += style_.key_separator;
            write(entry.second);
        });
    }

    Meter& meter_;
    const JsonStyle& style_;
    int depth_ = 0;
    std::string out_;
};

// Returns a hint about the mistake at the end of TOKEN, the last text that the parser has read.
// Returns "" if this text is not Python's form of a value.
std::string hint_for(std::string_view token) {
    if (token.ends_with("'"))
        return "a single quote: names and texts need double quotes, as in {\"name\": \"text\"}";
    if (token.ends_with("T") || token.ends_with("F") || token.ends_with("N"))
        return "a capital letter without a quote: the words of JSON are true, false and null, and "
               "texts need double quotes";
    return "";
}

// Builds values from the events of nlohmann's parser. The parser's own tree would lose the digits
// of large numbers, and the time to build it grows with the square of an object's number of keys.
class ValueBuilder : public nlohmann::json_sax<nlohmann::json> {
  public:
    Value result;
    std::string problem;

    bool null() override { return add(Value::none()); }
    bool boolean(bool flag) override { return add(Value::boolean(flag)); }
    bool number_integer(number_integer_t number) override { return add(Value::integer(number)); }
    bool number_unsigned(number_unsigned_t number) override {
        return add(new_integer(nullptr, std::to_string(number)));
    }
    bool number_float(number_float_t number, const string_t& text) override {
        const bool is_whole = text.find_first_of(".eE") == std::string::npos;
        return add(is_whole ? new_integer(nullptr, text) : Value::real(number));
    }
    bool string(string_t& text) override { return add(new_text(nullptr, std::move(text))); }
    bool binary(binary_t& /*unused*/) override { return false; }
    bool start_object(size_t /*unused*/) override { return open(); }
    bool start_array(size_t /*unused*/) override { return open(); }
    bool key(string_t& text) override {
        levels_.back().key = std::move(text);
        return true;
    }
    bool end_object() override {
        std::vector<Entry> entries = std::move(levels_.back().entries);
        levels_.pop_back();
        return add(new_dict(nullptr, std::move(entries)));
    }
    bool end_array() override {
        Values items = std::move(levels_.back().items);
        levels_.pop_back();
        return add(new_list(nullptr, std::move(items)));
    }
    bool parse_error(size_t column, const std::string& token,
                     const nlohmann::detail::exception& error) override {
        const std::string_view what = error.what();
        const size_t colon = what.find(": ");
        const std::string hint = hint_for(token);
        problem = fmt::format("invalid JSON at byte {}: {}", column,
                              !hint.empty()        ? hint
                              : colon == what.npos ? what
                                                   : what.substr(colon + 2));
        return false;
    }

  private:
    struct Level {
        Values items;
        std::vector<Entry> entries;
        std::unordered_map<std::string, size_t> places;  // the index of each key's entry
        std::optional<std::string> key;                  // the key whose value comes next
    };

    bool open() {
        levels_.emplace_back();
        if (levels_.size() <= size_t(kValueDepthMax)) return true;
        problem = fmt::format("nested deeper than {} levels", kValueDepthMax);
        return false;
    }

    bool add(Value value) {
        if (levels_.empty()) {
            result = std::move(value);
            return true;
        }
        Level& level = levels_.back();
        if (!level.key) {
            level.items.push_back(std::move(value));
            return true;
        }
        const auto [place, is_new] = level.places.emplace(*level.key, level.entries.size());
        if (is_new) {
            level.entries.emplace_back(new_text(nullptr, *level.key), std::move(value));
        } else {
            level.entries[place->second].second = std::move(value);
        }
        return true;
    }

    std::vector<Level> levels_;
};

}  // namespace

std::string json_of(Meter& meter, const JsonStyle& style, const Value& value) {
    return PythonJson(meter, style).run(value);
}

Value value_of_json(std::string_view text) {
    ValueBuilder builder;
    if (!nlohmann::json::sax_parse(text, &builder)) throw Fault(builder.problem);
    return builder.result;
}

}  // namespace dslaunch::text::jinja
