#include "text/chat_template/values/json_text.h"

#include "text/chat_template/values/compare.h"
#include "text/chat_template/values/points.h"
#include "text/chat_template/values/printing.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

namespace dslaunch::text::jinja {
namespace {

class JsonWriter {
  public:
    JsonWriter(Meter& meter, const JsonStyle& style) : meter_(meter), style_(style) {}

    std::string run(const Value& value) {
        write(value);
        return std::move(out_);
    }

  private:
    void write(const Value& value) {
        meter_.step();
        meter_.check_bytes(out_.size());
        switch (value.kind()) {
            case Kind::kNone:
                out_ += "null";
                return;
            case Kind::kBool:
                out_ += value.integral() != 0 ? "true" : "false";
                return;
            case Kind::kInt:
            case Kind::kLargeInt:
                append_str(meter_, out_, value);
                return;
            case Kind::kFloat:
                out_ += number(value.as_double());
                return;
            case Kind::kText:
                return quote(value.text());
            case Kind::kList:
            case Kind::kTuple:
                return write_items(value.items());
            case Kind::kDict:
                return write_entries(value.dict().entries);
            default: {
                const std::string name = value.undefined_name();
                throw Fault(
                    name.empty()
                        ? fmt::format("JSON cannot say a value of type {}", type_name(value))
                        : fmt::format("'{}' is undefined: JSON cannot say it", name));
            }
        }
    }

    static std::string number(double number) {
        if (std::isnan(number)) return "NaN";
        if (std::isinf(number)) return number > 0 ? "Infinity" : "-Infinity";
        return float_repr(number);
    }

    void escape(uint32_t unit) { out_ += fmt::format("\\u{:04x}", unit); }

    void quote(std::string_view text) {
        meter_.step_text(text.size());
        out_ += '"';
        for (size_t i = 0; i < text.size(); i += point_bytes(text[i])) {
            const char c = text[i];
            const uint32_t point = point_at(text, i);
            const size_t named = std::string_view("\"\\\n\r\t\f\b").find(c);
            if (named != std::string_view::npos) {
                out_ += '\\';
                out_ += "\"\\nrtfb"[named];
            } else if (point >= 0x20 && (point < 0x80 || !style_.ascii_only)) {
                out_ += text.substr(i, point_bytes(c));
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

    void write_items(const Values& items) {
        write_all(items, "[]", [&](const Value& item) { write(item); });
    }

    void write_entries(std::vector<Entry> entries) {
        if (style_.sort_keys) {
            std::stable_sort(entries.begin(), entries.end(), [&](const Entry& a, const Entry& b) {
                return order_of(meter_, a.first, b.first) == std::partial_ordering::less;
            });
        }
        write_all(entries, "{}", [&](const Entry& entry) {
            write_key(entry.first);
            out_ += style_.key_separator;
            write(entry.second);
        });
    }

    void write_key(const Value& key) {
        switch (key.kind()) {
            case Kind::kText:
                return quote(key.text());
            case Kind::kNone:
                return quote("null");
            case Kind::kBool:
                return quote(key.integral() != 0 ? "true" : "false");
            case Kind::kInt:
            case Kind::kLargeInt:
                return quote(str_of(meter_, key));
            case Kind::kFloat:
                return quote(number(key.as_double()));
            default:
                throw Fault(fmt::format("a key of type {} has no JSON", type_name(key)));
        }
    }

    Meter& meter_;
    const JsonStyle& style_;
    int depth_ = 0;
    std::string out_;
};

// Builds values from the parser's events.
class ValueBuilder : public nlohmann::json_sax<nlohmann::json> {
  public:
    Value result;
    std::string problem;

    bool null() override { return add(Value::none()); }
    bool boolean(bool flag) override { return add(Value::boolean(flag)); }
    bool number_integer(number_integer_t number) override { return add(Value::integer(number)); }
    bool number_unsigned(number_unsigned_t number) override {
        if (number <= uint64_t(INT64_MAX)) return add(Value::integer(int64_t(number)));
        return add(new_integer(nullptr, std::to_string(number)));
    }
    bool number_float(number_float_t number, const string_t& text) override {
        const bool is_whole = text.find_first_of(".eE") == std::string::npos;
        return add(is_whole ? new_integer(nullptr, text) : Value::real(number));
    }
    bool string(string_t& text) override { return add(new_text(nullptr, std::move(text))); }
    bool binary(binary_t& /*unused*/) override { return false; }
    bool start_object(size_t /*unused*/) override { return open(true); }
    bool start_array(size_t /*unused*/) override { return open(false); }
    bool key(string_t& text) override {
        levels_.back().key = std::move(text);
        return true;
    }
    bool end_object() override { return close(); }
    bool end_array() override { return close(); }
    bool parse_error(size_t column, const std::string& /*token*/,
                     const nlohmann::detail::exception& error) override {
        const std::string_view what = error.what();
        const size_t colon = what.find(": ");
        return stop(fmt::format("no JSON at byte {}: {}", column,
                                colon == what.npos ? what : what.substr(colon + 2)));
    }

  private:
    struct Level {
        bool is_object;
        Values items;
        std::vector<Entry> entries;
        std::string key;
    };

    bool stop(std::string message) {
        if (problem.empty()) problem = std::move(message);
        return false;
    }

    bool open(bool is_object) {
        if (levels_.size() >= size_t(kValueDepthMax))
            return stop(fmt::format("nested deeper than {} levels", kValueDepthMax));
        levels_.push_back({is_object, {}, {}, {}});
        return true;
    }

    bool close() {
        Level level = std::move(levels_.back());
        levels_.pop_back();
        return add(level.is_object ? new_dict(nullptr, unique(std::move(level.entries)))
                                   : new_list(nullptr, std::move(level.items)));
    }

    // The last value of a key that came more than once, where it came first.
    static std::vector<Entry> unique(std::vector<Entry> entries) {
        std::vector<size_t> order(entries.size());
        for (size_t i = 0; i < order.size(); ++i) order[i] = i;
        const auto text = [&](size_t i) -> const std::string& { return entries[i].first.text(); };
        std::stable_sort(order.begin(), order.end(),
                         [&](size_t a, size_t b) { return text(a) < text(b); });
        std::vector<bool> is_gone(entries.size(), false);
        bool any_gone = false;
        for (size_t i = 0, first = 0; i < order.size(); ++i) {
            if (i == 0 || text(order[i]) != text(order[first])) {
                first = i;
                continue;
            }
            entries[order[first]].second = entries[order[i]].second;
            any_gone = is_gone[order[i]] = true;
        }
        if (!any_gone) return entries;
        std::vector<Entry> kept;
        for (size_t i = 0; i < entries.size(); ++i)
            if (!is_gone[i]) kept.push_back(std::move(entries[i]));
        return kept;
    }

    bool add(Value value) {
        if (levels_.empty()) {
            result = std::move(value);
        } else if (levels_.back().is_object) {
            levels_.back().entries.emplace_back(new_text(nullptr, std::move(levels_.back().key)),
                                                std::move(value));
        } else {
            levels_.back().items.push_back(std::move(value));
        }
        return true;
    }

    std::vector<Level> levels_;
};

}  // namespace

std::string json_of(Meter& meter, const JsonStyle& style, const Value& value) {
    return JsonWriter(meter, style).run(value);
}

Value value_of_json(std::string_view text) {
    ValueBuilder builder;
    const bool ok = nlohmann::json::sax_parse(text, &builder);
    if (!ok) throw Fault(builder.problem.empty() ? "no JSON" : builder.problem);
    return builder.result;
}

}  // namespace dslaunch::text::jinja
