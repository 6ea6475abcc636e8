// A pattern that runs on Oniguruma, the library that the Python package `tokenizers` uses. The
// properties in the expression are first replaced by ranges, so that the library's version of
// Unicode does not matter.
#include <oniguruma.h>

#include <chrono>
#include <memory>
#include <mutex>
#include <string>

#include "base/check.h"
#include "base/error.h"
#include "base/text.h"
#include "text/pattern/char_set.h"
#include "text/pattern/pattern.h"
#include "text/pattern/simple_pattern.h"

namespace dslaunch::text {
namespace {

constexpr size_t kExpressionBytesMax = 16 << 10;
constexpr size_t kWrittenBytesMax = 4 << 20;       // a \w becomes some thousand ranges
constexpr unsigned long kRetriesMax = 20'000'000;  // of one search; about half a second
constexpr std::chrono::seconds kTimeMax{20};       // of all searches in one text
constexpr int kSearchesPerLook = 16;               // between two readings of the clock

const unsigned char* bytes(std::string_view text) {
    return reinterpret_cast<const unsigned char*>(text.data());
}

std::string as_class(const std::vector<CharRange>& ranges, bool is_negated) {
    std::string out = is_negated ? "[^" : "[";
    for (const CharRange& range : ranges)
        out += fmt::format("\\x{{{:x}}}-\\x{{{:x}}}", static_cast<uint32_t>(range.first),
                           static_cast<uint32_t>(range.last));
    return out + "]";
}

std::string flagged_class(const std::function<bool(uint32_t)>& wanted, bool is_negated) {
    const CodePoints& points = CodePoints::table();
    return as_class(ranges_of([&](char32_t point) { return wanted(points.flags(point)); }),
                    is_negated);
}

// Replaces the properties in an expression by ranges: \p{…}, \s, \d, \w and \b, and their
// opposites.
class ExpressionWriter {
  public:
    explicit ExpressionWriter(std::string_view text) : text_(text) {}

    std::string written() {
        while (at_ < text_.size()) {
            if (out_.size() > kWrittenBytesMax)
                fail(ExitCode::kInput, "the pattern has too many classes such as \\p{{…}} and \\w");
            const char c = text_[at_];
            if (c == '\\') {
                escape();
                continue;
            }
            if (c == '[' && depth_ > 0 && text_.substr(at_, 2) == "[:")
                fail(ExitCode::kInput,
                     "a class such as [:alpha:] is not supported; write \\p{{…}}");
            if (c == '[') {
                ++depth_;
                out_ += c;
                ++at_;
                if (text_.substr(at_, 1) == "^") copy(1);
                if (text_.substr(at_, 1) == "]") copy(1);  // a first `]` stands for itself
                continue;
            }
            if (c == ']' && depth_ > 0) --depth_;
            copy(1);
        }
        return out_;
    }

  private:
    void copy(size_t count) {
        out_ += text_.substr(at_, count);
        at_ += count;
    }

    void escape() {
        const char letter = at_ + 1 < text_.size() ? text_[at_ + 1] : '\0';
        switch (letter) {
            case 's':
            case 'S':
                out_ += flagged_class([](uint32_t flags) { return (flags & kSpaceFlag) != 0; },
                                      letter == 'S');
                break;
            case 'd':
            case 'D':
                out_ += flagged_class(*category_named("Nd"), letter == 'D');
                break;
            case 'w':
            case 'W':
                out_ += as_class(ranges_of(depth_ > 0 ? is_word_point_in_class : is_word_point),
                                 letter == 'W');
                break;
            case 'b':
            case 'B':
                if (depth_ > 0) return copy(2);
                word_boundary(letter == 'B');
                break;
            case 'p':
            case 'P':
                return property(letter == 'P');
            default:
                return copy(2);
        }
        at_ += 2;
    }

    void word_boundary(bool is_negated) {
        const std::string word = as_class(ranges_of(is_word_point), false);
        const auto both = [&](const char* before, const char* after) {
            return fmt::format("({}{})({}{})", before, word, after, word);
        };
        out_ += is_negated ? "(?:" + both("?<=", "?=") + "|" + both("?<!", "?!") + ")"
                           : "(?:" + both("?<=", "?!") + "|" + both("?<!", "?=") + ")";
    }

    void property(bool is_negated) {
        const size_t end = text_.find('}', at_);
        if (text_.substr(at_ + 2, 1) != "{" || end == std::string_view::npos)
            fail(ExitCode::kInput, "expected a name in braces after \\p");
        std::string_view name = text_.substr(at_ + 3, end - at_ - 3);
        at_ = end + 1;
        if (name.starts_with('^')) {
            is_negated = !is_negated;
            name.remove_prefix(1);
        }
        if (const auto category = category_named(name)) {
            out_ += flagged_class(*category, is_negated);
            return;
        }
        const std::vector<CharRange> ranges = script_named(name);
        if (ranges.empty())
            fail(ExitCode::kInput, "\\p{{{}}} is not a supported property", printable(name));
        out_ += as_class(ranges, is_negated);
    }

    std::string_view text_;
    size_t at_ = 0;
    int depth_ = 0;
    std::string out_;
};

struct FreeRegex {
    void operator()(regex_t* regex) const { onig_free(regex); }
};
struct FreeRegion {
    void operator()(OnigRegion* region) const { onig_region_free(region, 1); }
};
struct FreeParam {
    void operator()(OnigMatchParam* param) const { onig_free_match_param(param); }
};

std::string reason_of(int code, OnigErrorInfo* info) {
    unsigned char buffer[ONIG_MAX_ERROR_MESSAGE_LEN];
    const int length = onig_error_code_to_str(buffer, code, info);
    return printable({reinterpret_cast<const char*>(buffer), static_cast<size_t>(length)});
}

class LibraryPattern : public Pattern {
  public:
    explicit LibraryPattern(std::string_view expression) {
        static std::once_flag once;
        std::call_once(once, [] {
            OnigEncoding encodings[] = {ONIG_ENCODING_UTF8};
            onig_initialize(encodings, 1);
        });
        const std::string written = ExpressionWriter(expression).written();
        OnigErrorInfo info{};
        regex_t* regex = nullptr;
        const int code = onig_new(&regex, bytes(written), bytes(written) + written.size(),
                                  ONIG_OPTION_NONE, ONIG_ENCODING_UTF8, ONIG_SYNTAX_DEFAULT, &info);
        if (code != ONIG_NORMAL)
            fail(ExitCode::kInput, "invalid pattern: {}", reason_of(code, &info));
        regex_.reset(regex);
    }

    void find_all(std::string_view text, std::vector<Match>& matches) const override {
        const std::unique_ptr<OnigRegion, FreeRegion> region(onig_region_new());
        const std::unique_ptr<OnigMatchParam, FreeParam> param(onig_new_match_param());
        onig_initialize_match_param(param.get());
        onig_set_retry_limit_in_match_of_match_param(param.get(), kRetriesMax);
        onig_set_retry_limit_in_search_of_match_param(param.get(), kRetriesMax);
        const auto begun = std::chrono::steady_clock::now();
        size_t from = 0;
        size_t last_end = SIZE_MAX;
        for (int searches = 0; from <= text.size(); ++searches) {
            const int found = onig_search_with_param(
                regex_.get(), bytes(text), bytes(text) + text.size(), bytes(text) + from,
                bytes(text) + text.size(), region.get(), ONIG_OPTION_NONE, param.get());
            if (found == ONIG_MISMATCH) return;
            const bool is_late = searches % kSearchesPerLook == 0 &&
                                 std::chrono::steady_clock::now() - begun > kTimeMax;
            if (found < 0 || is_late)
                fail(ExitCode::kInput,
                     "a pattern of the tokenizer needs too much time for a text of {} bytes{}; "
                     "shorten the text",
                     text.size(), found < 0 ? ": " + reason_of(found, nullptr) : "");
            const auto begin = static_cast<size_t>(region->beg[0]);
            const auto end = static_cast<size_t>(region->end[0]);
            if (begin == end && last_end == end) {
                if (from == text.size()) return;
                (void)next_point(text, from);
                continue;
            }
            matches.push_back({static_cast<uint32_t>(begin), static_cast<uint32_t>(end)});
            from = last_end = end;
        }
    }

  private:
    std::unique_ptr<regex_t, FreeRegex> regex_;
};

class LiteralPattern : public Pattern {
  public:
    explicit LiteralPattern(std::string_view text) : text_(text) {
        DSL_CHECK(!text_.empty(), "nothing to find");
    }
    void find_all(std::string_view text, std::vector<Match>& matches) const override {
        for (size_t at = text.find(text_); at != std::string_view::npos;
             at = text.find(text_, at + text_.size()))
            matches.push_back(
                {static_cast<uint32_t>(at), static_cast<uint32_t>(at + text_.size())});
    }

  private:
    std::string text_;
};

}  // namespace

std::unique_ptr<const Pattern> compile_library_pattern(std::string_view expression) {
    return std::make_unique<LibraryPattern>(expression);
}

std::unique_ptr<const Pattern> compile_pattern(std::string_view expression) {
    if (expression.size() > kExpressionBytesMax)
        fail(ExitCode::kInput, "the pattern has {} bytes, but at most {} are supported",
             expression.size(), kExpressionBytesMax);
    auto simple = compile_simple_pattern(expression);
    return simple ? std::move(simple) : compile_library_pattern(expression);
}

std::unique_ptr<const Pattern> literal_pattern(std::string_view text) {
    return std::make_unique<LiteralPattern>(text);
}

}  // namespace dslaunch::text
