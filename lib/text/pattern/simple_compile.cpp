// Compiles expressions to the steps of simple_pattern.h. Expressions that these steps cannot
// express run on Oniguruma.
#include <algorithm>
#include <optional>

#include "text/pattern/simple_pattern.h"

namespace dslaunch::text {
namespace {

constexpr uint32_t kRepeatMax = 1u << 30;
constexpr size_t kSetsMax = 32;          // each set has a bit in uint32_t
constexpr size_t kAlternativesMax = 32;  // each alternative has a bit in uint32_t
constexpr size_t kPatternStepsMax = 256;
constexpr int kPatternDepthMax = 4;
// Pairs of letters that Oniguruma also finds in one character if it ignores case: for example, "ss"
// in ß. This engine cannot do so.
constexpr std::string_view kFoldedPairs[] = {"ss", "ff", "fi", "fl", "st"};

struct BeyondEngine {};  // thrown if this engine does not support the expression

struct PatternNode {
    SimpleStep step;
    std::vector<std::vector<PatternNode>> alternatives;  // of a group
};
using PatternSequence = std::vector<PatternNode>;

class ExpressionParser {
  public:
    explicit ExpressionParser(std::string_view text) : text_(text) {}

    SimpleProgram program() {
        const std::vector<PatternSequence> alternatives = read_alternatives(0);
        if (at_ != text_.size() || alternatives.size() > kAlternativesMax) throw BeyondEngine{};
        const size_t steps_count = count(alternatives);
        if (steps_count > kPatternStepsMax) throw BeyondEngine{};
        const auto accept = static_cast<uint16_t>(steps_count);
        program_.steps.reserve(steps_count);
        for (const PatternSequence& sequence : alternatives) {
            if (is_maybe_empty(sequence)) throw BeyondEngine{};
            program_.heads.push_back(place(sequence, accept));
        }
        for (SimpleStep& step : program_.steps) step.gives_back = gives_back(step, accept);
        return std::move(program_);
    }

  private:
    [[nodiscard]] bool ends() const { return at_ == text_.size(); }
    [[nodiscard]] char peek() const { return ends() ? '\0' : text_[at_]; }
    bool take(std::string_view wanted) {
        if (text_.substr(at_, wanted.size()) != wanted) return false;
        at_ += wanted.size();
        return true;
    }
    void need(bool is_so) const {
        if (!is_so) throw BeyondEngine{};
    }

    std::vector<PatternSequence> read_alternatives(int depth) {
        need(depth <= kPatternDepthMax);
        std::vector<PatternSequence> alternatives(1);
        while (!ends() && peek() != ')') {
            if (take("|")) {
                alternatives.emplace_back();
            } else {
                alternatives.back().push_back(read_node(depth));
            }
        }
        if (ignores_case_)
            for (const PatternSequence& sequence : alternatives) check_folding(sequence);
        return alternatives;
    }

    PatternNode read_node(int depth) {
        PatternNode node;
        if (peek() == '(') return read_group(depth);
        node.step.set = number_of(read_atom());
        read_repeat(node.step);
        return node;
    }

    PatternNode read_group(int depth) {
        PatternNode node;
        node.step.kind = SimpleStep::Kind::kGroup;
        const bool before = ignores_case_;
        if (take("(?!") || take("(?=")) {
            node.step.kind = SimpleStep::Kind::kAhead;
            node.step.is_negative = text_[at_ - 1] == '!';
            node.step.set = number_of(read_atom());
            need(take(")"));
            return node;
        }
        if (take("(?i:")) {
            ignores_case_ = true;
        } else if (!take("(?:")) {
            need(text_.substr(at_, 2) != "(?");
            take("(");
        }
        node.alternatives = read_alternatives(depth + 1);
        need(take(")"));
        ignores_case_ = before;
        node.step.is_optional = take("?");
        need(ends() || std::string_view("?*+{").find(peek()) == std::string_view::npos);
        return node;
    }

    void read_repeat(SimpleStep& step) {
        const auto set = [&](uint32_t least, uint32_t most) {
            step.repeat_min = least;
            step.repeat_max = most;
        };
        bool is_interval = false;
        if (take("?")) {
            set(0, 1);
        } else if (take("*")) {
            set(0, kRepeatMax);
        } else if (take("+")) {
            set(1, kRepeatMax);
        } else if (take("{")) {
            is_interval = true;
            const uint32_t least = read_number();
            uint32_t most = least;
            if (take(",")) most = peek() == '}' ? kRepeatMax : read_number();
            need(take("}") && least >= 1 && most >= least);
            set(least, most);
        } else {
            return;
        }
        if (!is_interval && take("+")) step.is_possessive = true;
        need(ends() || std::string_view("?*+{").find(peek()) == std::string_view::npos);
    }

    uint32_t read_number() {
        const size_t begin = at_;
        uint32_t number = 0;
        while (peek() >= '0' && peek() <= '9' && at_ < begin + 4)
            number = number * 10 + static_cast<uint32_t>(text_[at_++] - '0');
        need(at_ > begin);
        return number;
    }

    CharSet read_atom() {
        if (take("[")) return read_class();
        CharSet set;
        if (peek() == '\\') {
            need(!ignores_case_);
            add_escape(set);
            return set;
        }
        need(!ends() && std::string_view("|()?*+{}.^$]").find(peek()) == std::string_view::npos);
        const char32_t point = next_point(text_, at_);
        if (ignores_case_) {
            add_folded(set, point);
        } else {
            set.add(point, point);
        }
        return set;
    }

    void add_folded(CharSet& set, char32_t point) const {
        need(point < 0x80);
        set.add(point, point);
        const char32_t small = point | 0x20;
        if (small < 'a' || small > 'z') return;
        set.add(small, small);
        set.add(small - 32, small - 32);
        if (small == 's') set.add(0x17F, 0x17F);    // long s
        if (small == 'k') set.add(0x212A, 0x212A);  // Kelvin
    }

    CharSet read_class() {
        need(!ignores_case_);
        CharSet set;
        const bool is_negated = take("^");
        need(peek() != ']');
        while (!take("]")) {
            need(!ends() && peek() != '[' && text_.substr(at_, 2) != "&&");
            std::optional<char32_t> first;
            if (peek() == '\\') {
                first = add_escape(set);
            } else {
                first = next_point(text_, at_);
            }
            const bool is_range = peek() == '-' && at_ + 1 < text_.size() && text_[at_ + 1] != ']';
            if (!is_range) {
                if (first) set.add(*first, *first);
                continue;
            }
            need(first.has_value());
            ++at_;
            CharSet unused;
            need(peek() != '[');
            const std::optional<char32_t> last =
                peek() == '\\' ? add_escape(unused) : next_point(text_, at_);
            need(last.has_value() && *last >= *first);
            set.add(*first, *last);
        }
        if (is_negated) set.negate();
        return set;
    }

    // Reads an escape and adds its code points to SET. If the escape stands for exactly one code
    // point, returns this code point.
    std::optional<char32_t> add_escape(CharSet& set) {
        need(at_ + 1 < text_.size());
        const char letter = text_[at_ + 1];
        at_ += 2;
        const auto one = [&](char32_t point) {
            set.add(point, point);
            return point;
        };
        const auto classes = [&](bool is_negated, const std::function<bool(uint32_t)>& wanted) {
            set.add_classes([&](uint32_t flags) { return wanted(flags) != is_negated; });
        };
        switch (letter) {
            case 'n':
                return one('\n');
            case 'r':
                return one('\r');
            case 't':
                return one('\t');
            case 's':
            case 'S':
                classes(letter == 'S', [](uint32_t flags) { return (flags & kSpaceFlag) != 0; });
                return std::nullopt;
            case 'd':
            case 'D':
                classes(letter == 'D', *category_named("Nd"));
                return std::nullopt;
            case 'p':
            case 'P':
                add_property(set, letter == 'P');
                return std::nullopt;
            default:
                need(static_cast<unsigned char>(letter) < 0x80 && letter > ' ' &&
                     !((letter >= '0' && letter <= '9') || (letter >= 'a' && letter <= 'z') ||
                       (letter >= 'A' && letter <= 'Z')));
                return one(static_cast<char32_t>(letter));
        }
    }

    void add_property(CharSet& set, bool is_negated) {
        need(take("{"));
        if (take("^")) is_negated = !is_negated;
        const size_t end = text_.find('}', at_);
        need(end != std::string_view::npos);
        const std::string_view name = text_.substr(at_, end - at_);
        at_ = end + 1;
        if (const auto category = category_named(name)) {
            set.add_classes([&](uint32_t flags) { return (*category)(flags) != is_negated; });
            return;
        }
        const std::vector<CharRange> ranges = script_named(name);
        need(!ranges.empty() && !is_negated);
        for (const CharRange& range : ranges) set.add(range.first, range.last);
    }

    // Returns the index of SET among the sets of the program; equal sets have the same index.
    uint8_t number_of(CharSet set) {
        const auto known = std::ranges::find(program_.sets, set);
        const auto number = static_cast<uint8_t>(known - program_.sets.begin());
        if (known != program_.sets.end()) return number;
        need(program_.sets.size() < kSetsMax);
        program_.sets.push_back(std::move(set));
        return number;
    }

    // Throws BeyondEngine if the letters of SEQUENCE, which ignores case, may contain a pair of
    // kFoldedPairs.
    void check_folding(const PatternSequence& sequence) const {
        std::string letters;
        for (const PatternNode& node : sequence) {
            need(node.step.kind == SimpleStep::Kind::kSet);
            for (char c = 'a'; c <= 'z'; ++c)
                if (program_.sets[node.step.set].has_ascii(static_cast<char32_t>(c))) letters += c;
        }
        for (const std::string_view pair : kFoldedPairs)
            need(letters.find(pair) == std::string::npos);
    }

    static size_t count(const std::vector<PatternSequence>& alternatives) {
        size_t steps = 0;
        for (const PatternSequence& sequence : alternatives)
            for (const PatternNode& node : sequence) steps += 1 + count(node.alternatives);
        return steps;
    }

    static bool is_maybe_empty(const PatternSequence& sequence) {
        return std::all_of(sequence.begin(), sequence.end(), [](const PatternNode& node) {
            if (node.step.kind == SimpleStep::Kind::kSet) return node.step.repeat_min == 0;
            if (node.step.kind == SimpleStep::Kind::kAhead || node.step.is_optional) return true;
            return std::any_of(node.alternatives.begin(), node.alternatives.end(),
                               [](const PatternSequence& inner) { return is_maybe_empty(inner); });
        });
    }

    // Adds the steps of SEQUENCE; step AFTER follows the last of them. Returns the number of the
    // first step.
    uint16_t place(const PatternSequence& sequence, uint16_t after) {
        uint16_t next = after;
        for (size_t i = sequence.size(); i-- > 0;) {
            SimpleStep step = sequence[i].step;
            step.next = next;
            for (const PatternSequence& inner : sequence[i].alternatives)
                step.heads.push_back(place(inner, next));
            program_.steps.push_back(std::move(step));
            next = static_cast<uint16_t>(program_.steps.size() - 1);
        }
        return next;
    }

    // Returns true if STEP may have to give back characters so that the rest of the pattern
    // matches. Returns false if STEP is the last step, or if the next step needs a character that
    // STEP cannot match.
    [[nodiscard]] bool gives_back(const SimpleStep& step, uint16_t accept) const {
        if (step.is_possessive || step.next == accept) return false;
        const SimpleStep& next = program_.steps[step.next];
        return next.kind != SimpleStep::Kind::kSet || next.repeat_min == 0 ||
               !program_.sets[step.set].is_disjoint(program_.sets[next.set]);
    }

    std::string_view text_;
    size_t at_ = 0;
    bool ignores_case_ = false;
    SimpleProgram program_;
};

}  // namespace

std::unique_ptr<const Pattern> compile_simple_pattern(std::string_view expression) {
    try {
        return std::make_unique<SimplePattern>(ExpressionParser(expression).program());
    } catch (const BeyondEngine&) {
        return nullptr;
    }
}

}  // namespace dslaunch::text
