#include "config/read/train_config.h"

#include "base/error.h"
#include "base/text.h"

#include <nlohmann/json.hpp>

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <optional>
#include <sstream>

namespace dslaunch::config {
namespace {

using Kind = Value::Kind;

// Ends the reading at once: what was read so far is not used.
struct StopReading {
    Problem problem;
};

bool digits_only(std::string_view text) {
    return !text.empty() &&
           std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

// Decimal number by JSON and YAML 1.2: sign, digits, point, exponent; no hex, no "1_000", no "inf".
std::optional<double> plain_number(std::string_view text) {
    std::string_view body = text;
    if (!body.empty() && (body[0] == '-' || body[0] == '+')) body.remove_prefix(1);
    if (body.find_first_not_of("0123456789.eE+-") != std::string_view::npos) return {};
    if (body.find_first_of("0123456789") == std::string_view::npos) return {};
    return parse_double(text[0] == '+' ? text.substr(1) : text);
}

Value plain_scalar(const std::string& text) {
    if (text.empty() || text == "~" || text == "null" || text == "Null" || text == "NULL")
        return {};
    if (text == "true" || text == "True" || text == "TRUE") return make_value(true);
    if (text == "false" || text == "False" || text == "FALSE") return make_value(false);
    if (text == ".nan" || text == "NaN" || text == ".NaN") {
        return make_value(std::numeric_limits<double>::quiet_NaN());
    }
    if (text == ".inf" || text == "Infinity")
        return make_value(std::numeric_limits<double>::infinity());
    if (text == "-.inf" || text == "-Infinity")
        return make_value(-std::numeric_limits<double>::infinity());
    std::string_view digits = text;
    if (digits[0] == '-' || digits[0] == '+') digits.remove_prefix(1);
    if (digits_only(digits)) {
        if (auto number = parse_int(text[0] == '+' ? digits : text)) return make_value(*number);
    }
    if (auto number = plain_number(text)) return make_value(*number);
    return make_value(text);
}

// Builds the tree from yaml-cpp's events. Events, not nodes: they show duplicate keys, quotes and
// aliases.
class TreeBuilder : public YAML::EventHandler {
  public:
    TreeBuilder(TrainConfig& config, Origin fixed_origin)
        : config_(config), fixed_origin_(std::move(fixed_origin)) {}

    void OnDocumentStart(const YAML::Mark&) override {}
    void OnDocumentEnd() override {}
    void OnNull(const YAML::Mark& mark, YAML::anchor_t) override { add(Value{}, mark); }
    void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override {
        stop(mark, "YAML aliases (*name) are not read in a config: write the value out");
    }
    void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  const std::string& text) override {
        plain_only(mark, tag, anchor);
        bool awaits_key =
            !open_.empty() && open_.back().value.is(Kind::kObject) && !open_.back().has_key;
        if (awaits_key) return take_key(text, mark);
        add(tag == "!" ? make_value(text) : plain_scalar(text), mark);
    }
    void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                         YAML::EmitterStyle::value) override {
        plain_only(mark, tag, anchor);
        open(Kind::kList, mark);
    }
    void OnSequenceEnd() override { close(); }
    void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                    YAML::EmitterStyle::value) override {
        plain_only(mark, tag, anchor);
        open(Kind::kObject, mark);
    }
    void OnMapEnd() override { close(); }

    [[nodiscard]] const std::optional<Value>& root() const { return root_; }

  private:
    struct Open {
        Value value;
        std::string key;  // waits for its value
        bool has_key = false;
        bool duplicate = false;
    };

    [[nodiscard]] Origin origin(const YAML::Mark& mark) const {
        if (!fixed_origin_.empty()) return fixed_origin_;
        return fmt::format("{}:{}:{}", config_.name, mark.line + 1, mark.column + 1);
    }

    [[noreturn]] void stop(const YAML::Mark& mark, std::string message) const {
        throw StopReading{Problem{path(), std::move(message), origin(mark)}};
    }

    void plain_only(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor) const {
        if (anchor != 0)
            stop(mark, "YAML anchors (&name) are not read in a config: write the value out");
        if (!tag.empty() && tag != "?" && tag != "!") {
            stop(mark, fmt::format("YAML tags ({}) are not read in a config", tag));
        }
    }

    [[nodiscard]] std::string path() const {
        std::vector<std::string> parts;
        for (const Open& level : open_) {
            if (level.has_key) parts.push_back(level.key);
        }
        return join(parts, ".");
    }

    void take_key(const std::string& key, const YAML::Mark& mark) {
        Open& level = open_.back();
        if (level.value.keys.size() >= kConfigSectionKeysMax ||
            config_.problems.size() >= kConfigSectionKeysMax) {
            stop(mark, fmt::format("more than {} keys in one section", kConfigSectionKeysMax));
        }
        level.duplicate = level.value.find(key) != nullptr;
        level.key = key;
        level.has_key = true;
        if (level.duplicate) {
            const Origin& first = level.value.find(key)->origin;
            config_.problems.push_back(
                {path(), "duplicate key, first given at " + first, origin(mark)});
        }
    }

    void open(Kind kind, const YAML::Mark& mark) {
        if (!open_.empty() && open_.back().value.is(Kind::kObject) && !open_.back().has_key) {
            stop(mark, "a key must be a plain name");
        }
        if (open_.size() >= size_t(kConfigDepthMax)) {
            stop(mark, fmt::format("nested deeper than {} levels", kConfigDepthMax));
        }
        Open level;
        level.value.kind = kind;
        level.value.origin = origin(mark);
        open_.push_back(std::move(level));
    }

    void close() {
        Value value = std::move(open_.back().value);
        open_.pop_back();
        put(std::move(value));
    }

    void add(Value value, const YAML::Mark& mark) {
        if (!open_.empty() && open_.back().value.is(Kind::kObject) && !open_.back().has_key) {
            stop(mark, "a key must be a plain name");
        }
        value.origin = origin(mark);
        put(std::move(value));
    }

    void put(Value value) {
        if (open_.empty()) {
            root_ = std::move(value);
            return;
        }
        Open& level = open_.back();
        if (level.value.is(Kind::kObject)) {
            level.has_key = false;
            if (level.duplicate) return;
            level.value.keys.push_back(std::move(level.key));
        }
        level.value.items.push_back(std::move(value));
    }

    TrainConfig& config_;
    Origin fixed_origin_;
    std::vector<Open> open_;
    std::optional<Value> root_;
};

std::optional<uint32_t> hex4(std::string_view text, size_t at) {
    if (at + 4 > text.size()) return {};
    uint32_t code = 0;
    for (size_t i = at; i < at + 4; ++i) {
        char c = text[i];
        uint32_t digit = 0;
        if (c >= '0' && c <= '9')
            digit = uint32_t(c - '0');
        else if (c >= 'a' && c <= 'f')
            digit = uint32_t(c - 'a' + 10);
        else if (c >= 'A' && c <= 'F')
            digit = uint32_t(c - 'A' + 10);
        else
            return {};
        code = code * 16 + digit;
    }
    return code;
}

// JSON writes characters beyond U+FFFF as two \u escapes, which YAML refuses: rewritten as YAML's
// one \U escape.
std::string join_surrogates(std::string_view text) {
    std::string result;
    result.reserve(text.size());
    for (size_t i = 0; i < text.size();) {
        if (text[i] != '\\' || i + 1 >= text.size()) {
            result += text[i++];
            continue;
        }
        auto high = text[i + 1] == 'u' ? hex4(text, i + 2) : std::nullopt;
        bool pair = high && *high >= 0xD800 && *high < 0xDC00 && text.substr(i + 6, 2) == "\\u";
        auto low = pair ? hex4(text, i + 8) : std::nullopt;
        if (low && *low >= 0xDC00 && *low < 0xE000) {
            result +=
                fmt::format("\\U{:08X}", 0x10000 + ((*high - 0xD800) << 10) + (*low - 0xDC00));
            i += 12;
        } else {
            result += text.substr(i, 2);
            i += 2;
        }
    }
    return result;
}

// Walks over JSON or flow YAML: brackets must pair, strings must end, nesting has a limit.
// yaml-cpp's own words for an unclosed bracket mislead, and its parser recurses before the first
// event.
class BracketCheck {
  public:
    explicit BracketCheck(std::string_view text) : text_(text) {}

    // The first thing wrong; `origin` holds "line:column".
    std::optional<Problem> run() {
        for (; at_ < text_.size(); advance()) {
            char c = text_[at_];
            if (c == '#' && (at_ == 0 || text_[at_ - 1] == ' ' || text_[at_ - 1] == '\n')) {
                while (at_ + 1 < text_.size() && text_[at_ + 1] != '\n') advance();
            } else if (c == '"' || (c == '\'' && starts_scalar())) {
                if (auto problem = string(c)) return problem;
            } else if (c == '{' || c == '[') {
                open_.push_back({c, place()});
                if (open_.size() > size_t(kConfigDepthMax)) {
                    return Problem{"", fmt::format("nested deeper than {} levels", kConfigDepthMax),
                                   place()};
                }
            } else if (c == '}' || c == ']') {
                char opener = c == '}' ? '{' : '[';
                if (open_.empty() || open_.back().first != opener) {
                    return Problem{"", fmt::format("`{}` closes no `{}`", c, opener), place()};
                }
                open_.pop_back();
            }
        }
        if (open_.empty()) return {};
        return Problem{"", fmt::format("the `{}` is never closed", open_.back().first),
                       open_.back().second};
    }

  private:
    [[nodiscard]] Origin place() const { return fmt::format("{}:{}", line_, column_); }

    [[nodiscard]] bool starts_scalar() const {
        size_t before =
            at_ == 0 ? std::string_view::npos : text_.find_last_not_of(" \t\r\n", at_ - 1);
        return before != std::string_view::npos &&
               std::string_view("{[,:").find(text_[before]) != std::string_view::npos;
    }

    void advance() {
        bool new_line = text_[at_++] == '\n';
        column_ = new_line ? 1 : column_ + 1;
        line_ += new_line ? 1 : 0;
    }

    std::optional<Problem> string(char quote) {
        Problem problem{"", "the string that starts here is never closed", place()};
        advance();
        while (at_ < text_.size() && text_[at_] != quote) {
            if (quote == '"' && text_[at_] == '\\' && at_ + 1 < text_.size()) advance();
            advance();
        }
        if (at_ >= text_.size()) return problem;
        return {};
    }

    std::string_view text_;
    size_t at_ = 0;
    int64_t line_ = 1;
    int64_t column_ = 1;
    std::vector<std::pair<char, Origin>> open_;
};

bool is_flow(std::string_view text) {
    std::string_view body = trim(text);
    return !body.empty() && (body[0] == '{' || body[0] == '[');
}

// The one document in TEXT, or nothing with a problem added.
std::optional<Value> read_tree(TrainConfig& config, std::string_view text,
                               const Origin& fixed_origin) {
    if (auto problem = is_flow(text) ? BracketCheck(text).run() : std::nullopt) {
        problem->origin = fixed_origin.empty() ? fmt::format("{}:{}", config.name, problem->origin)
                                               : fixed_origin;
        config.problems.push_back(*problem);
        return {};
    }
    std::istringstream stream(join_surrogates(text));
    TreeBuilder builder(config, fixed_origin);
    try {
        YAML::Parser parser(stream);
        if (!parser.HandleNextDocument(builder)) return Value{};
        std::optional<Value> root = builder.root();
        TreeBuilder rest(config, fixed_origin);
        if (parser.HandleNextDocument(rest)) {
            config.problems.push_back({"", "more text after the end of the config", config.name});
            return {};
        }
        return root;
    } catch (const StopReading& stop) {
        config.problems.push_back(stop.problem);
    } catch (const YAML::Exception& error) {
        Origin origin = fixed_origin;
        if (origin.empty()) {
            origin = error.mark.is_null() ? config.name
                                          : fmt::format("{}:{}:{}", config.name,
                                                        error.mark.line + 1, error.mark.column + 1);
        }
        config.problems.push_back({"", "not valid JSON or YAML: " + error.msg, origin});
    }
    return {};
}

// Calls USE with each byte of JSON text that is in no string, and its place.
template <typename Use>
void outside_strings(std::string& text, Use use) {
    char quote = '\0';
    for (size_t i = 0; i < text.size(); ++i) {
        if (quote == '\0' && (text[i] == '"' || text[i] == '\'')) {
            quote = text[i];
        } else if (quote == '\0') {
            i = use(i);
        } else if (text[i] == '\\') {
            ++i;
        } else if (text[i] == quote || text[i] == '\n') {
            quote = '\0';
        }
    }
}

// TEXT with blanks for the comments that DeepSpeed's reader (HJSON) skips, `#`, `//` and `/* */`,
// so that every place stays.
std::string without_comments(std::string text) {
    outside_strings(text, [&](size_t i) {
        const bool line = text[i] == '#' || text.compare(i, 2, "//") == 0;
        if (!line && text.compare(i, 2, "/*") != 0) return i;
        const size_t end = line ? text.find('\n', i) : text.find("*/", i + 2);
        const size_t last = end == std::string::npos ? text.size() : line ? end : end + 2;
        for (size_t k = i; k < last; ++k)
            if (text[k] != '\n') text[k] = ' ';
        return last - 1;
    });
    return text;
}

// TEXT without comments, with a blank for each comma before a closing bracket.
std::string without_last_commas(std::string text) {
    outside_strings(text, [&](size_t i) {
        if (text[i] != ',') return i;
        const size_t next = text.find_first_not_of(" \t\r\n", i + 1);
        const size_t before = std::string_view(text).substr(0, i).find_last_not_of(" \t\r\n");
        if (before == std::string::npos || text[before] == '{' || text[before] == '[') return i;
        if (next != std::string::npos && (text[next] == '}' || text[next] == ']')) text[i] = ' ';
        return i;
    });
    return text;
}

// YAML allows what JSON does not, as words without quotes: what is called .json must be JSON, but
// for comments and last commas. TEXT is without comments. Nothing: it is JSON.
std::optional<Problem> json_problem(const std::string& text_given, const std::string& name) {
    const std::string text = without_last_commas(text_given);
    try {
        const nlohmann::json read_for_its_form = nlohmann::json::parse(text);
        return {};
    } catch (const nlohmann::json::parse_error& error) {
        const size_t at = std::min(error.byte == 0 ? 0 : error.byte - 1, text.size());
        const std::string_view before = std::string_view(text).substr(0, at);
        const size_t line_begin = before.rfind('\n') + 1;  // npos + 1 is 0
        // "[json.exception…] parse error at line 3, column 1: syntax error while parsing …"
        std::string_view message = error.what();
        const size_t cause = message.find(": ");
        if (cause != std::string_view::npos) message.remove_prefix(cause + 2);
        return Problem{
            "", "not valid JSON: " + printable(message),
            fmt::format("{}:{}:{}", name, std::count(before.begin(), before.end(), '\n') + 1,
                        at - line_begin + 1)};
    }
}

}  // namespace

TrainConfig empty_config() {
    TrainConfig config;
    config.root.kind = Kind::kObject;
    return config;
}

TrainConfig parse_config(std::string_view text, const std::string& name) {
    TrainConfig config = empty_config();
    config.name = name;
    const bool is_json = name.ends_with(".json") || name.ends_with(".hjson");
    std::string plain;
    if (is_json && text.size() <= kConfigBytesMax) {
        plain = without_comments(std::string(text));
        text = plain;
    }
    auto refuse = [&](std::string message) {
        config.problems.push_back({"", std::move(message), name});
    };
    if (text.size() > kConfigBytesMax) {
        refuse(fmt::format("{} bytes, more than the {} a config may have", text.size(),
                           kConfigBytesMax));
    } else if (text.find('\0') != std::string_view::npos) {
        refuse("holds a zero byte: not a text file");
    } else if (trim(text).empty()) {
        refuse("is empty: write {} for a config of defaults");
    } else if (auto problem = is_json ? json_problem(plain, name) : std::nullopt) {
        config.problems.push_back(std::move(*problem));
    } else if (auto root = read_tree(config, text, "")) {
        if (root->is(Kind::kObject)) {
            config.root = std::move(*root);
        } else {
            refuse("must be an object {\"key\": value, …}, not " + describe(*root));
        }
    }
    return config;
}

TrainConfig load_config(const std::string& path) {
    std::error_code failure;
    auto status = std::filesystem::status(path, failure);
    if (!std::filesystem::exists(status)) fail(ExitCode::kConfig, "config {}: no such file", path);
    if (std::filesystem::is_directory(status)) {
        fail(ExitCode::kConfig, "config {}: is a directory; give the file, e.g. {}/ds_config.json",
             path, path);
    }
    errno = 0;
    std::ifstream file(path, std::ios::binary);
    if (!file) fail(ExitCode::kConfig, "config {}: cannot be read: {}", path, errno_text(errno));
    std::string text(kConfigBytesMax + 1, '\0');
    file.read(text.data(), std::streamsize(text.size()));
    if (file.bad())
        fail(ExitCode::kConfig, "config {}: cannot be read: {}", path, errno_text(errno));
    text.resize(size_t(file.gcount()));
    return parse_config(text, path);
}

void apply_override(TrainConfig& config, std::string_view assignment, const Origin& origin) {
    size_t equals = assignment.find('=');
    if (equals == std::string_view::npos) {
        fail(ExitCode::kUsage, "{} {}: write {} KEY=VALUE, e.g. optimizer.params.lr=0.01", origin,
             assignment, origin);
    }
    TrainConfig scratch = empty_config();
    std::string_view text = assignment.substr(equals + 1);
    auto value = text.size() > kConfigBytesMax ? std::nullopt : read_tree(scratch, text, origin);
    if (!value || !scratch.problems.empty()) {
        std::string why = scratch.problems.empty() ? "too long" : scratch.problems.front().message;
        fail(ExitCode::kUsage, "{} {}: {}", origin, assignment, why);
    }
    std::string_view path = trim(assignment.substr(0, equals));
    for (const std::string& part : split(path, '.')) {
        if (part.empty())
            fail(ExitCode::kUsage, "{} {}: an empty name in the key", origin, assignment);
    }
    value->origin = origin;
    if (!set_path(config.root, path, std::move(*value))) {
        fail(ExitCode::kUsage, "{} {}: a part of the key is a value, not an object", origin,
             assignment);
    }
}

void apply_text(TrainConfig& config, std::string_view path, std::string text,
                const Origin& origin) {
    Value value = make_value(std::move(text));
    value.origin = origin;
    if (!set_path(config.root, path, std::move(value))) {
        fail(ExitCode::kUsage, "{}: a part of the key {} is a value, not an object", origin, path);
    }
}

}  // namespace dslaunch::config
