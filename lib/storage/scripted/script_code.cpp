#include "storage/scripted/script_code.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/text.h"

namespace dslaunch::storage {

namespace {

constexpr std::string_view kFolder = "code/", kEnding = ".py", kRoot = "__torch__";
constexpr int64_t kElifMax = 200;  // each `elif` is nested in the one before

bool is_word(char c) {
    const auto byte = static_cast<unsigned char>(c);
    return c == '_' || byte >= 0x80 || (byte >= '0' && byte <= '9') ||
           ((byte | 0x20) >= 'a' && (byte | 0x20) <= 'z');
}

// Returns "__torch__.models.gpt" for "code/__torch__/models/gpt.py".
std::string qualifier_of(std::string_view record) {
    record.remove_prefix(kFolder.size());
    record.remove_suffix(kEnding.size());
    std::string name(record);
    std::ranges::replace(name, '/', '.');
    return name;
}

// Estimates how deep LibTorch's parser nests the expressions of a statement. Each token counts as
// an open part until a comma or a closing bracket ends the expression that contains the token.
// Tokens before an open bracket stay open.
class OpenParts {
  public:
    // Counts TOKENS more tokens as open inside the innermost open bracket. Returns the number of
    // all open parts.
    int64_t add(int64_t tokens) {
        tokens_ += tokens;
        all_tokens_ += tokens;
        deepest_ = std::max(deepest_, all_tokens_);
        return all_tokens_;
    }
    void open_bracket() { outside_.push_back(std::exchange(tokens_, 0)); }
    // Returns false if no bracket is open.
    bool close_bracket() {
        if (outside_.empty()) return false;
        all_tokens_ -= tokens_;
        tokens_ = outside_.back();
        outside_.pop_back();
        return true;
    }
    [[nodiscard]] bool is_in_bracket() const { return !outside_.empty(); }
    // Ends a list element at a comma. Returns the number of elements in the statement so far.
    int64_t end_element() {
        add(-tokens_);
        return ++elements_;
    }
    void end_statement() {
        add(-tokens_);
        elements_ = 0;
    }
    // Returns the largest number of parts that were open at once since the last call.
    int64_t take_deepest() { return std::exchange(deepest_, 0); }

  private:
    int64_t tokens_ = 0;            // open tokens at this level
    int64_t all_tokens_ = 0;        // open tokens at all levels
    std::vector<int64_t> outside_;  // the tokens of the levels outside of each open bracket
    int64_t elements_ = 0;          // list elements in the current statement
    int64_t deepest_ = 0;
};

}  // namespace

// Scans the text of one record, with the same tokens as LibTorch's lexer.
class CodeScan {
  public:
    CodeScan(ScriptCode& code, std::string_view record, std::string_view text)
        : code_(code), record_(record), qualifier_(qualifier_of(record)), text_(text) {}

    void run() {
        while (at_ < text_.size()) {
            const char c = text_[at_];
            if (c == '\n') {
                end_line();
            } else if (c == ' ' || c == '\t' || c == '\r') {
                ++at_;
            } else {
                if (begins_line_) begin_line();
                token(c);
            }
        }
        if (parts_.is_in_bracket()) bad("a bracket is not closed");
        end_function();
    }

  private:
    template <typename... Args>
    [[noreturn]] void bad(fmt::format_string<Args...> format, Args&&... args) const {
        fail(ExitCode::kInput, "{}: {}:{}: {}", code_.path_, printable(record_), line_,
             fmt::format(format, std::forward<Args>(args)...));
    }

    void end_line() {
        ++at_;
        ++line_;
        line_begin_ = at_;
        if (parts_.is_in_bracket()) return;
        parts_.end_statement();
        begins_line_ = true;
    }

    // Begins a line. The depth of its block is the number of steps in its indentation.
    void begin_line() {
        begins_line_ = false;
        const auto indentation = static_cast<int64_t>(at_ - line_begin_);
        while (!blocks_.empty() && blocks_.back() >= indentation) blocks_.pop_back();
        if (indentation > 0) blocks_.push_back(indentation);
        if (std::ssize(blocks_) > kCodeBlocksMax)
            bad("blocks are nested more than {} deep", kCodeBlocksMax);
        most_blocks_ = std::max(most_blocks_, std::ssize(blocks_));
        define(indentation);
    }

    // Begins a class or function. Its name is the second word of a line without indentation. All
    // functions of a class belong to one definition, since they may call each other.
    void define(int64_t indentation) {
        const std::string_view line = text_.substr(at_, text_.find('\n', at_) - at_);
        const bool is_function = line.starts_with("def ");
        if (is_function) end_function();
        if (indentation > 0 || (!is_function && !line.starts_with("class "))) return;
        end_function();
        const std::string_view rest = line.substr(line.find(' ') + 1);
        const auto end = std::find_if_not(rest.begin(), rest.end(), is_word);
        definition_ = &code_.definitions_[qualifier_ + "." + std::string(rest.begin(), end)];
    }

    void end_function() {
        constexpr int64_t kBlockDepth = 10, kFunctionDepth = 10;
        const int64_t deepest = parts_.take_deepest();
        if (definition_ != nullptr)
            definition_->depth += kFunctionDepth + deepest + kBlockDepth * most_blocks_;
        most_blocks_ = 0;
    }

    void token(char c) {
        switch (c) {
            case '\'':
            case '"':
                string(c);
                break;
            case '#':
                comment();
                return;
            case '\\':
                bad("a line is continued with a backslash, which LibTorch never writes");
            case '(':
            case '[':
            case '{':
                parts_.open_bracket();
                ++at_;
                break;
            case ')':
            case ']':
            case '}':
                if (!parts_.close_bracket()) bad("a closing bracket has no opening bracket");
                ++at_;
                break;
            case ',':
                if (parts_.end_element() > kCodeElementsMax)
                    bad("a statement has more than {} elements", kCodeElementsMax);
                ++at_;
                return;
            default:
                is_word(c) ? word() : void(++at_);
        }
        count(1);
    }

    void count(int64_t tokens) {
        if (parts_.add(tokens) > kOpenTokensMax)
            bad("an expression is nested too deep: it has more than {} open parts", kOpenTokensMax);
    }

    // Skips a string literal up to the end that LibTorch's lexer finds; an escaped character does
    // not end it.
    void string(char quote) {
        const std::string three(3, quote);
        const std::string mark = text_.substr(at_).starts_with(three) ? three : three.substr(0, 1);
        size_t end = at_ + mark.size();
        while (end < text_.size() && !text_.substr(end).starts_with(mark)) {
            if (text_[end] == '\n') {
                if (mark.size() == 1) bad("a string is not closed");
                ++line_;
            }
            end += text_[end] == '\\' ? 2 : 1;
        }
        if (end >= text_.size()) bad("a string is not closed");
        at_ = end + mark.size();
    }

    void comment() {
        for (; at_ < text_.size() && text_[at_] != '\n'; ++at_)
            if (text_[at_] == '\'' || text_[at_] == '"' || text_[at_] == '(' || text_[at_] == '[')
                bad("a comment contains quotes or brackets, which LibTorch never writes");
    }

    // Reads a name with dots as one word: "__torch__.models.gpt.Gpt".
    void word() {
        const size_t begin = at_;
        int64_t parts_count = 0;
        while (at_ < text_.size() && is_word(text_[at_])) {
            while (at_ < text_.size() && is_word(text_[at_])) ++at_;
            ++parts_count;
            if (at_ + 1 < text_.size() && text_[at_] == '.' && is_word(text_[at_ + 1])) ++at_;
        }
        count(parts_count - 1);
        const std::string_view name = text_.substr(begin, at_ - begin);
        if (name == "elif" && ++elif_count_ > kElifMax)
            bad("a function has more than {} `elif`", kElifMax);
        if (name.starts_with(kRoot) && definition_ != nullptr) definition_->needs.emplace(name);
    }

    ScriptCode& code_;
    const std::string_view record_;
    const std::string qualifier_;
    const std::string_view text_;
    size_t at_ = 0, line_begin_ = 0;
    int64_t line_ = 1, elif_count_ = 0;
    bool begins_line_ = true;
    std::vector<int64_t> blocks_;  // the indentation of each open block
    int64_t most_blocks_ = 0;      // the most open blocks in the current function
    OpenParts parts_;
    ScriptCode::Definition* definition_ = nullptr;
};

void ScriptCode::add(std::string_view name, std::string_view text) {
    code_bytes_ += std::ssize(text);
    if (code_bytes_ > kCodeBytesMax)
        fail(ExitCode::kInput, "{}: its code has more than {} bytes", path_, kCodeBytesMax);
    CodeScan(*this, name, text).run();
}

const ScriptCode::Definition* ScriptCode::find(std::string_view name) const {
    const std::string begin = std::string(name) + ".";
    const auto inside = definitions_.lower_bound(begin);
    if (definitions_.count(name) == 0 && inside != definitions_.end() &&
        inside->first.starts_with(begin))
        fail(
            ExitCode::kInput,
            "{}: its code uses {} as a class or a function, but this name is only the beginning of "
            "other names",
            path_, printable(name));
    while (true) {
        const auto found = definitions_.find(name);
        if (found != definitions_.end()) return &found->second;
        const size_t dot = name.rfind('.');
        if (dot == std::string_view::npos) return nullptr;
        name = name.substr(0, dot);
    }
}

int64_t ScriptCode::depth() const {
    struct Open {
        const Definition* definition;
        std::set<std::string>::const_iterator next;
        int64_t below = 0;  // the largest depth of a definition that this one needs
    };
    std::map<const Definition*, int64_t> depths;  // 0 while a definition is open
    int64_t deepest = 0;
    std::vector<Open> open;
    const auto enter = [&](const Definition* definition) {
        if (definition != nullptr && depths.try_emplace(definition, 0).second)
            open.push_back({definition, definition->needs.begin()});
    };
    for (const auto& [name, root] : definitions_) {
        enter(&root);
        while (!open.empty()) {
            Open& here = open.back();
            if (here.next != here.definition->needs.end()) {
                const Definition* const needed = find(*here.next++);
                // Cycles need no check here: LibTorch refuses a definition that needs itself.
                if (const auto known = depths.find(needed); known != depths.end())
                    here.below = std::max(here.below, known->second);
                else
                    enter(needed);
                continue;
            }
            const int64_t depth = here.definition->depth + here.below;
            if (depth > kCodeDepthMax)
                fail(ExitCode::kInput, "{}: its code is nested more than {} parts deep, at {}",
                     path_, kCodeDepthMax, printable(name));
            depths[here.definition] = depth;
            deepest = std::max(deepest, depth);
            open.pop_back();
            if (!open.empty()) open.back().below = std::max(open.back().below, depth);
        }
    }
    return deepest;
}

}  // namespace dslaunch::storage
