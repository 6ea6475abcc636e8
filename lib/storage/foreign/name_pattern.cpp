#include "storage/foreign/name_pattern.h"

#include <algorithm>
#include <cctype>

#include "storage/foreign/deepspeed_parts.h"

namespace dslaunch::storage {
namespace {

constexpr size_t kTextMax = 1024;
constexpr int64_t kRepeatMax = 64;
constexpr size_t kAtomsMax = 4096;

using Set = std::bitset<256>;

Set set_of(char c) {
    Set set;
    set[static_cast<uint8_t>(c)] = true;
    return set;
}

// Returns the characters of \d, \w or an escaped sign; nothing for other letters.
Set escaped(char c) {
    Set set;
    for (int i = 0; i < 256; ++i) {
        const bool digit = i >= '0' && i <= '9';
        const bool word = digit || i == '_' || (i < 128 && std::isalpha(i) != 0);
        set[static_cast<size_t>(i)] = (c == 'd' && digit) || (c == 'w' && word);
    }
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) set[static_cast<uint8_t>(c)] = true;
    return set;
}

// Reads one pattern; at() is the next character.
class Reader {
  public:
    Reader(const std::string& where, const std::string& text) : where_(where), text_(text) {}

    [[nodiscard]] bool done() const { return at_ == text_.size(); }
    [[nodiscard]] char next() const { return text_[at_]; }
    [[nodiscard]] bool is_last() const { return at_ + 1 == text_.size() || text_[at_ + 1] == '|'; }
    void skip() { ++at_; }
    bool takes(char c) {
        if (done() || next() != c) return false;
        skip();
        return true;
    }

    Set set() {
        const char c = next();
        skip();
        if (c == '.') return Set().set();
        if (c == '[') return class_of();
        if (c == '\\' && !done()) {
            Set found = escaped(next());
            if (found.none()) bad();
            skip();
            return found;
        }
        if (std::string_view("\\()*+?{}^$").find(c) != std::string_view::npos) bad();
        return set_of(c);
    }

    // Returns the number in braces. The opening brace has been read.
    int64_t count() {
        int64_t number = 0;
        while (!done() && std::isdigit(static_cast<unsigned char>(next())) != 0 &&
               number <= kRepeatMax) {
            number = number * 10 + next() - '0';
            skip();
        }
        if (!takes('}') || number < 1 || number > kRepeatMax) bad();
        return number;
    }

    [[noreturn]] void bad() const {
        refuse(where_,
               "the pattern `{}` is not supported from character {} on: only characters, `.`, "
               "classes, repeats and alternatives without parentheses are supported",
               text_, at_);
    }

  private:
    Set class_of() {
        const bool negates = takes('^');
        Set set;
        bool first = true;
        while (first || done() || next() != ']') {
            if (done()) bad();
            first = false;
            const char from = next();
            skip();
            if (from == '\\' && !done()) {
                const Set some = escaped(next());
                if (some.none()) bad();
                skip();
                for (size_t i = 0; i < set.size(); ++i) set[i] = set[i] || some[i];
                continue;
            }
            char to = from;
            if (at_ + 1 < text_.size() && next() == '-' && text_[at_ + 1] != ']') {
                to = text_[at_ + 1];
                at_ += 2;
            }
            for (int i = static_cast<uint8_t>(from); i <= static_cast<uint8_t>(to); ++i)
                set[static_cast<size_t>(i)] = true;
        }
        skip();
        if (negates) set.flip();
        return set;
    }

    const std::string& where_;
    const std::string& text_;
    size_t at_ = 0;
};

}  // namespace

NamePattern::NamePattern(const std::string& where, const std::string& text) : text_(text) {
    if (text.size() > kTextMax)
        refuse(where, "has a pattern of {} characters, more than {}", text.size(), kTextMax);
    Reader reader(where, text_);
    alternatives_.emplace_back();
    bool begins = true;
    while (!reader.done()) {
        Alternative& now = alternatives_.back();
        if (reader.takes('|')) {
            alternatives_.emplace_back();
            begins = true;
            continue;
        }
        if (begins && reader.takes('^')) continue;
        begins = false;
        if (reader.next() == '$' && reader.is_last()) {
            reader.skip();
            now.to_end = true;
            continue;
        }
        Atom atom;
        atom.allows = reader.set();
        int64_t count = 1;
        if (reader.takes('{')) {
            count = reader.count();
        } else if (reader.takes('*')) {
            atom.may_miss = atom.may_repeat = true;
        } else if (reader.takes('+')) {
            atom.may_repeat = true;
        } else if (reader.takes('?')) {
            atom.may_miss = true;
        }
        // Ignores `?` after another quantifier: it would only change which of several matches is
        // found.
        if (atom.may_miss || atom.may_repeat) reader.takes('?');
        for (int64_t i = 0; i < count; ++i) now.atoms.push_back(atom);
        if (now.atoms.size() > kAtomsMax)
            refuse(where, "the pattern `{}` repeats more than {} characters", text, kAtomsMax);
    }
}

size_t NamePattern::atoms() const {
    size_t count = 0;
    for (const Alternative& one : alternatives_) count += one.atoms.size() + 1;
    return count;
}

bool NamePattern::matches(std::string_view name) const {
    const auto fits = [&](const Alternative& one) {
        // reached[a]: the characters so far match the first a atoms.
        const size_t end = one.atoms.size();
        std::vector<bool> reached(end + 1, false);
        reached[0] = true;
        const auto skip_missing = [&] {
            for (size_t a = 0; a < end; ++a)
                if (reached[a] && one.atoms[a].may_miss) reached[a + 1] = true;
        };
        skip_missing();
        if (reached[end] && !one.to_end) return true;
        for (const char c : name) {
            std::vector<bool> next(end + 1, false);
            for (size_t a = 0; a < end; ++a) {
                if (!one.atoms[a].allows[static_cast<uint8_t>(c)]) continue;
                if (reached[a]) next[a + 1] = true;
                if (reached[a + 1] && one.atoms[a].may_repeat) next[a + 1] = true;
            }
            reached = std::move(next);
            skip_missing();
            if (reached[end] && !one.to_end) return true;
        }
        return static_cast<bool>(reached[end]);
    };
    return std::ranges::any_of(alternatives_, fits);
}

}  // namespace dslaunch::storage
