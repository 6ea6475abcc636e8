#include "launch/plan/environment_file.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <iterator>

#include "base/error.h"
#include "base/text.h"
#include "launch/plan/join_token.h"

namespace dslaunch::launch {
namespace {

constexpr std::array<std::string_view, 11> kForwardedPrefixes = {
    "NCCL_", "GLOO_",  "TORCH_", "OMP_", "GOMP_",  "MKL_",
    "KMP_",  "PYTHON", "UCX_",   "HF_",  "MLFLOW_"};

bool begins_name(char c) {
    return c == '_' || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

size_t end_of_name(std::string_view text, size_t at) {
    while (at < text.size() && (begins_name(text[at]) || is_digit(text[at]))) ++at;
    return at;
}

constexpr size_t kNestedMax = 8;
constexpr std::string_view kOperators[] = {":-", "-", ":+", "+"};

// A value that refers to variables, in the form that expand_variables() reads: `$$` is a `$`, and
// `${NAME}`, `${NAME:-TEXT}` and the like refer to variables.
struct Template {
    std::string text;
    bool has_names = false;
    std::string problem;  // why the value cannot be read; else empty
};

// A reader of the value in a line. The quotes around the value decide where it ends.
class ValueReader {
  public:
    explicit ValueReader(std::string_view text) : text_(text) {}

    Template read() {
        if (!text_.empty() && text_.front() == '\'') return as_it_is();
        quoted_ = !text_.empty() && text_.front() == '"';
        at_ = quoted_ ? 1 : 0;
        part(0);
        const bool ended = quoted_ ? at_ + 1 == text_.size() : at_ == text_.size();
        if (value_.problem.empty() && !ended) value_.problem = kOpenQuote;
        return std::move(value_);
    }

  private:
    static constexpr const char* kOpenQuote = "does not end at the end of the line";

    Template as_it_is() {
        const size_t end = text_.find('\'', 1);
        if (end == std::string_view::npos || end + 1 != text_.size())
            return {"", false, kOpenQuote};
        for (const char c : text_.substr(1, end - 1)) put(c);
        return std::move(value_);
    }
    void put(char c) { value_.text += c == '$' ? "$$" : std::string(1, c); }
    void refuse(std::string why) {
        if (value_.problem.empty()) value_.problem = std::move(why);
        at_ = text_.size();
    }
    [[nodiscard]] char next(size_t more = 0) const {
        return at_ + more < text_.size() ? text_[at_ + more] : '\0';
    }

    // Reads to the closing quote of the value. If DEPTH is above 0, the part is inside `${`, and is
    // read to the closing brace.
    void part(size_t depth) {
        while (at_ < text_.size()) {
            const char c = text_[at_];
            if ((c == '"' && quoted_) || (c == '}' && depth > 0)) return;
            if (c == '\\' && at_ + 1 < text_.size()) {
                escape();
            } else if (c == '$') {
                dollar(depth);
            } else if (c == '`') {
                refuse(
                    "contains `` ` ``, which runs a command under deepspeed, but dslaunch runs no "
                    "shell: write the command's output instead, or put '…' around the value");
            } else {
                put(c);
                ++at_;
            }
        }
    }
    void escape() {
        const char c = next(1);
        at_ += 2;
        if (quoted_ && (c == 'n' || c == 't')) return put(c == 'n' ? '\n' : '\t');
        const bool is_escape = c == '$' || c == '`' || (quoted_ && (c == '"' || c == '\\'));
        if (!is_escape) put('\\');
        put(c);
    }
    void dollar(size_t depth) {
        const bool braced = next(1) == '{';
        const size_t begin = at_ + (braced ? 2 : 1);
        if (next(1) == '(')
            return refuse(
                "contains `$(`, which runs a command under deepspeed, but dslaunch runs no shell: "
                "write the command's output instead, or put '…' around the value");
        if (begin >= text_.size() || !begins_name(text_[begin])) {
            if (braced) return refuse("contains `${` without the name of a variable");
            const size_t signs = next(1) == '$' ? 2 : 1;  // `$$`: a shell's process id
            for (size_t i = 0; i < signs; ++i) put('$');
            at_ += signs;
            return;
        }
        const size_t end = end_of_name(text_, begin);
        value_.has_names = true;
        (value_.text += "${") += text_.substr(begin, end - begin);
        at_ = end;
        if (braced) inside(depth + 1);
        value_.text += '}';
    }
    void inside(size_t depth) {
        if (next() != '}') {
            const auto* op = std::ranges::find_if(kOperators, [&](std::string_view known) {
                return text_.substr(at_).starts_with(known);
            });
            if (op == std::end(kOperators) || depth > kNestedMax)
                return refuse(
                    "contains a form of `${…}` that is not supported: write ${NAME}, or "
                    "${NAME:-TEXT}");
            value_.text += *op;
            at_ += op->size();
            part(depth);
        }
        if (next() != '}') return refuse("contains a `${` without a closing `}`");
        ++at_;
    }

    std::string_view text_;
    size_t at_ = 0;
    bool quoted_ = false;
    Template value_;
};

// Expands a template of ValueReader, beginning at AT. Reads to the end of the text or, inside an
// outer `${`, to its closing brace.
std::string expanded(std::string_view text, size_t& at, const ValueOf& value_of, size_t depth) {
    std::string result;
    while (at < text.size() && !(text[at] == '}' && depth > 0)) {
        if (text[at] != '$') {
            result += text[at++];
            continue;
        }
        if (text.substr(at).starts_with("$$")) {
            result += '$';
            at += 2;
            continue;
        }
        const size_t begin = std::min(at + 2, text.size());
        const size_t end = end_of_name(text, begin);
        const std::string* const value = value_of(std::string(text.substr(begin, end - begin)));
        at = end;
        std::string_view op;
        for (const std::string_view known : kOperators)
            if (op.empty() && text.substr(at).starts_with(known)) op = known;
        at += op.size();
        const std::string other = op.empty() ? "" : expanded(text, at, value_of, depth + 1);
        const bool is_set = value != nullptr && (!op.starts_with(':') || !value->empty());
        if (op.ends_with('+')) {
            result += is_set ? other : "";
        } else {
            result += is_set ? *value : other;
        }
        at = std::min(at + 1, text.size());  // the closing brace
    }
    return result;
}

}  // namespace

std::string expand_variables(std::string_view text, const ValueOf& value_of) {
    size_t at = 0;
    return expanded(text, at, value_of, 0);
}

EnvironmentFile parse_environment_file(std::string_view text, const std::string& file_name) {
    EnvironmentFile file;
    std::vector<std::string> problems;
    int number = 0;
    for (const std::string& raw : split(text, '\n')) {
        ++number;
        std::string_view line = trim(raw);
        if (line.empty() || line.front() == '#') continue;
        if (line.starts_with("export ")) line = trim(line.substr(7));
        const size_t equals = line.find('=');
        const std::string_view name = trim(line.substr(0, equals));
        if (equals == std::string_view::npos) {
            problems.push_back(
                fmt::format("{}:{}: `{}` is not NAME=VALUE", file_name, number, printable(line)));
        } else if (!is_variable_name(name)) {
            problems.push_back(fmt::format("{}:{}: `{}` is not a variable name", file_name, number,
                                           printable(name)));
        } else if (name == kTokenVariable) {
            problems.push_back(
                fmt::format("{}:{}: {} is dslaunch's own secret and cannot be given to workers; "
                            "remove the line",
                            file_name, number, name));
        } else if (is_rank_variable(name)) {
            problems.push_back(
                fmt::format("{}:{}: {} is set by dslaunch for each rank; remove the line",
                            file_name, number, name));
        } else if (line.find('\0') != std::string_view::npos) {
            problems.push_back(fmt::format("{}:{}: there is a NUL byte in the value of {}",
                                           file_name, number, name));
        } else if (Template value = ValueReader(trim(line.substr(equals + 1))).read();
                   !value.problem.empty()) {
            problems.push_back(fmt::format("{}:{}: the {}value of {} {}", file_name, number,
                                           value.problem.starts_with("does") ? "quoted " : "", name,
                                           value.problem));
        } else {
            if (value.has_names) file.expanded.push_back(std::ssize(file.variables));
            // A value that refers to no variables is stored as its final text.
            file.variables.emplace_back(
                name, value.has_names ? std::move(value.text) : expand_variables(value.text, {}));
        }
    }
    if (!problems.empty()) throw Error(ExitCode::kUsage, join(problems, "\n"));
    return file;
}

bool is_variable_name(std::string_view name) {
    if (name.empty() || std::isdigit(static_cast<unsigned char>(name[0])) != 0) return false;
    return std::all_of(name.begin(), name.end(), [](char c) {
        return c == '_' || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') ||
               (c >= 'A' && c <= 'Z');
    });
}

bool is_rank_variable(std::string_view name) {
    if (name.starts_with("DSL_")) return true;
    const EnvironmentList list = WorkerEnvironment().variables();
    return std::any_of(list.begin(), list.end(),
                       [&](const auto& entry) { return entry.first == name; });
}

bool has_forwarded_prefix(std::string_view name) {
    return std::any_of(kForwardedPrefixes.begin(), kForwardedPrefixes.end(),
                       [&](std::string_view prefix) { return name.starts_with(prefix); });
}

}  // namespace dslaunch::launch
