#include "config/read/train_config.h"

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

#include "base/error.h"
#include "base/text.h"
#include "base/text/file_faults.h"
#include "config/read/quoteless.h"
#include "config/read/tree_builder.h"

namespace dslaunch::config {
namespace {

using Kind = Value::Kind;

bool digits_only(std::string_view text) {
    return !text.empty() &&
           std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

// Reads a decimal number of JSON and YAML 1.2: sign, digits, point and exponent, but not
// hexadecimal numbers, 1_000 or inf.
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

// A handler of yaml-cpp's events that builds the config's tree. Unlike yaml-cpp's nodes, events
// show duplicate keys, quotes and aliases.
class YamlEvents : public YAML::EventHandler {
  public:
    explicit YamlEvents(TreeBuilder& tree) : tree_(tree) {}

    void OnDocumentStart(const YAML::Mark&) override {}
    void OnDocumentEnd() override {}
    void OnNull(const YAML::Mark& mark, YAML::anchor_t) override { tree_.add({}, place(mark)); }
    void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override {
        tree_.stop(place(mark),
                   "YAML aliases (*name) are not supported in a config: write the value itself");
    }
    void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  const std::string& text) override {
        plain_only(mark, tag, anchor);
        if (tree_.awaits_key()) return tree_.take_key(text, place(mark));
        const auto mistake = tag == "!" ? std::nullopt : number_mistake(text);
        if (mistake) tree_.stop(place(mark), *mistake);
        tree_.add(tag == "!" ? make_value(text) : plain_scalar(text), place(mark));
    }
    void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                         YAML::EmitterStyle::value) override {
        plain_only(mark, tag, anchor);
        tree_.open(Kind::kList, place(mark));
    }
    void OnSequenceEnd() override { tree_.close(); }
    void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                    YAML::EmitterStyle::value) override {
        plain_only(mark, tag, anchor);
        tree_.open(Kind::kObject, place(mark));
    }
    void OnMapEnd() override { tree_.close(); }

  private:
    static TextPlace place(const YAML::Mark& mark) { return {mark.line + 1, mark.column + 1}; }

    void plain_only(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor) const {
        if (anchor != 0) {
            tree_.stop(
                place(mark),
                "YAML anchors (&name) are not supported in a config: write the value itself");
        }
        if (!tag.empty() && tag != "?" && tag != "!") {
            tree_.stop(place(mark),
                       fmt::format("YAML tags ({}) are not supported in a config", tag));
        }
    }

    TreeBuilder& tree_;
};

// Rewrites characters beyond U+FFFF. JSON writes such a character as two \u escapes, which YAML
// refuses; YAML writes it as one \U escape.
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

// A scanner of JSON and flow YAML. It checks that brackets match, strings end, and nesting is
// limited. It runs before yaml-cpp, whose messages about an unclosed bracket are misleading, and
// whose parser recurses before it sends the first event.
class BracketCheck {
  public:
    explicit BracketCheck(std::string_view text) : text_(text) {}

    // Returns the first fault, with "line:column" as its `origin`.
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

// Returns the only document in TEXT, or adds a problem and returns nothing.
std::optional<Value> read_yaml(TrainConfig& config, std::string_view text,
                               const Origin& fixed_origin) {
    if (auto problem = is_flow(text) ? BracketCheck(text).run() : std::nullopt) {
        problem->origin = fixed_origin.empty() ? fmt::format("{}:{}", config.name, problem->origin)
                                               : fixed_origin;
        config.problems.push_back(*problem);
        return {};
    }
    std::istringstream stream(join_surrogates(text));
    TreeBuilder tree(config.problems, config.name, fixed_origin);
    TreeBuilder rest(config.problems, config.name, fixed_origin);
    YamlEvents events(tree), more_events(rest);
    try {
        YAML::Parser parser(stream);
        if (!parser.HandleNextDocument(events)) return Value{};
        std::optional<Value> root = tree.root();
        if (parser.HandleNextDocument(more_events)) {
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

// Returns the value of TEXT. Returns nothing if a problem was added or TEXT has only comments.
std::optional<Value> read_json(TrainConfig& config, std::string_view text) {
    TreeBuilder tree(config.problems, config.name, "");
    try {
        read_hjson(text, tree);
        return tree.root();
    } catch (const StopReading& stop) {
        config.problems.push_back(stop.problem);
        return {};
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
    auto refuse = [&](std::string message) {
        config.problems.push_back({"", std::move(message), name});
    };
    std::optional<Value> root;
    if (text.starts_with("PK\x03\x04")) {
        refuse(
            "is an archive, but a config must be a .json or .yaml file. Training a model uses the "
            "config that is packed in it, without --config; `dslaunch config check MODEL` shows "
            "it");
    } else if (text.size() > kConfigBytesMax) {
        refuse(fmt::format("has more than {} bytes, the most that a config may have",
                           kConfigBytesMax));
    } else if (text.find('\0') != std::string_view::npos) {
        const bool is_utf16 = text.starts_with("\xff\xfe") || text.starts_with("\xfe\xff");
        refuse(is_utf16 ? "is UTF-16, but must be UTF-8: iconv -f UTF-16 -t UTF-8 FILE > NEW.json"
                        : "contains a zero byte, so it is not a text file");
    } else if (!trim(text).empty()) {
        root = is_json ? read_json(config, text) : read_yaml(config, text, "");
    }
    if (root && root->is(Kind::kObject)) {
        config.root = std::move(*root);
    } else if (root) {
        refuse("must be an object {\"key\": value, …}, not " + describe(*root));
    } else if (config.problems.empty()) {
        refuse("is empty: write {} for a config of defaults");
    }
    return config;
}

TrainConfig load_config(const std::string& path) {
    std::error_code failure;
    auto status = std::filesystem::status(path, failure);
    if (!std::filesystem::exists(status))
        fail(ExitCode::kConfig, "config {}: no such file{}", path, near_file_text(path));
    if (std::filesystem::is_directory(status)) {
        fail(ExitCode::kConfig, "config {}: is a directory; give the file, e.g. {}/ds_config.json",
             path, path);
    }
    errno = 0;
    std::ifstream file(path, std::ios::binary);
    if (!file) fail(ExitCode::kConfig, "config {}: cannot be read: {}", path, errno_text(errno));
    if (path.ends_with(".jsonl"))
        fail(ExitCode::kConfig,
             "config {}: a .jsonl file contains rows of data, but a config is one JSON object; "
             "give data with --data",
             path);
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
    if (origin == "--set" && trim(text).empty())
        fail(ExitCode::kUsage,
             "{0} {1}: the value is missing (an empty variable of the shell?); to use the default, "
             "leave {0} {1} out, or write {1}null",
             origin, assignment);
    auto value = text.size() > kConfigBytesMax ? std::nullopt : read_yaml(scratch, text, origin);
    if (!value || !scratch.problems.empty()) {
        std::string why = scratch.problems.empty() ? "too long" : scratch.problems.front().message;
        fail(ExitCode::kUsage, "{} {}: {}", origin, assignment, why);
    }
    std::string_view path = trim(assignment.substr(0, equals));
    for (const std::string& part : split(path, '.')) {
        if (part.empty())
            fail(ExitCode::kUsage, "{} {}: the key contains an empty name", origin, assignment);
    }
    value->origin = origin;
    if (!set_path(config.root, path, std::move(*value))) {
        fail(ExitCode::kUsage,
             "{} {}: a name before the last dot has a value that is not an object, so it cannot "
             "contain keys",
             origin, assignment);
    }
}

void apply_text(TrainConfig& config, std::string_view path, std::string text,
                const Origin& origin) {
    Value value = make_value(std::move(text));
    value.origin = origin;
    if (!set_path(config.root, path, std::move(value))) {
        fail(ExitCode::kUsage,
             "{}: in the key {}, a name before the last dot has a value that is not an object, so "
             "it cannot contain keys",
             origin, path);
    }
}

}  // namespace dslaunch::config
