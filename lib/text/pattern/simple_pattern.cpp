#include "text/pattern/simple_pattern.h"

#include <bit>
#include <utility>

#include "base/error.h"

namespace dslaunch::text {
namespace {

constexpr size_t kNoMatch = SIZE_MAX;
constexpr uint64_t kStepsPerByte = 256;  // a pattern of a tokenizer takes a few
constexpr uint64_t kStepsMin = 1 << 20;

}  // namespace

struct SimplePattern::Run {
    std::string_view text;
    uint64_t steps_left;

    void spend(size_t steps) {
        if (steps > steps_left)
            fail(ExitCode::kInput,
                 "a pattern of the tokenizer needs too much time for a text of {} bytes, because "
                 "it scans the same characters again and again; shorten the text",
                 text.size());
        steps_left -= steps;
    }
};

SimplePattern::SimplePattern(SimpleProgram program) : program_(std::move(program)) {
    const size_t classes_count = CodePoints::table().classes_count();
    for (size_t i = 0; i < program_.sets.size(); ++i) {
        const CharSet& set = program_.sets[i];
        for (size_t c = 0; c < ascii_.size(); ++c)
            ascii_[c] |= uint32_t{set.has_ascii(static_cast<char32_t>(c))} << i;
        for (size_t c = 0; c < classes_count; ++c) classes_[c] |= uint32_t{set.has_class(c)} << i;
        if (!set.ranges().empty()) has_ranges_ |= 1u << i;
    }
    for (size_t i = 0; i < program_.heads.size(); ++i) {
        std::vector<uint8_t> sets;
        const bool is_known = collect_first(program_.heads[i], sets);
        uint32_t mask = 0;
        for (const uint8_t set : sets) mask |= 1u << set;
        const bool any = !is_known;
        for (size_t c = 0; c < ascii_.size(); ++c)
            first_ascii_[c] |= uint32_t{any || (ascii_[c] & mask) != 0} << i;
        for (size_t c = 0; c < classes_.size(); ++c)
            first_classes_[c] |=
                uint32_t{any || (classes_[c] & mask) != 0 || (has_ranges_ & mask) != 0} << i;
    }
}

bool SimplePattern::collect_first(uint16_t index, std::vector<uint8_t>& sets) const {
    if (index == program_.steps.size()) return false;
    const SimpleStep& step = program_.steps[index];
    switch (step.kind) {
        case SimpleStep::Kind::kSet:
            sets.push_back(step.set);
            return step.repeat_min > 0 || collect_first(step.next, sets);
        case SimpleStep::Kind::kGroup:
            for (const uint16_t head : step.heads)
                if (!collect_first(head, sets)) return false;
            return !step.is_optional || collect_first(step.next, sets);
        case SimpleStep::Kind::kAhead:
            return collect_first(step.next, sets);
    }
    return false;
}

inline bool SimplePattern::is_in(uint8_t set, std::string_view text, size_t at, size_t& end) const {
    end = at;
    const auto byte = static_cast<unsigned char>(text[at]);
    if (byte < 0x80) return ++end, (ascii_[byte] >> set & 1) != 0;
    const char32_t point = next_point(text, end);
    if (has_ranges_ >> set & 1) return program_.sets[set].has(point);
    return (classes_[CodePoints::table().class_of(point)] >> set & 1) != 0;
}

size_t SimplePattern::end_of_set(Run& run, const SimpleStep& step, size_t at) const {
    const size_t begin = at;
    size_t least = at;  // the end of the fewest repetitions
    uint32_t count = 0;
    size_t end = at;
    while (count < step.repeat_max && at < run.text.size() && is_in(step.set, run.text, at, end)) {
        at = end;
        if (++count == step.repeat_min) least = at;
    }
    run.spend(at - begin + 1);
    if (count < step.repeat_min) return kNoMatch;
    if (!step.gives_back) return end_of(run, step.next, at);
    while (true) {
        const size_t whole = end_of(run, step.next, at);
        if (whole != kNoMatch || at == least) return whole;
        at = previous_begin(run.text, at);
    }
}

size_t SimplePattern::end_of(Run& run, uint16_t index, size_t at) const {
    while (index != program_.steps.size()) {
        const SimpleStep& step = program_.steps[index];
        if (step.kind == SimpleStep::Kind::kSet) {
            if (step.repeat_max != 1 || step.repeat_min != 1) return end_of_set(run, step, at);
            run.spend(1);
            size_t end = at;
            if (at == run.text.size() || !is_in(step.set, run.text, at, end)) return kNoMatch;
            at = end;
        } else if (step.kind == SimpleStep::Kind::kAhead) {
            run.spend(1);
            size_t end = at;
            const bool is_there = at < run.text.size() && is_in(step.set, run.text, at, end);
            if (is_there == step.is_negative) return kNoMatch;
        } else {
            for (const uint16_t head : step.heads) {
                run.spend(1);
                const size_t end = end_of(run, head, at);
                if (end != kNoMatch) return end;
            }
            if (!step.is_optional) return kNoMatch;
        }
        index = step.next;
    }
    return at;
}

inline uint32_t SimplePattern::alternatives_at(std::string_view text, size_t at) const {
    const auto byte = static_cast<unsigned char>(text[at]);
    if (byte < 0x80) return first_ascii_[byte];
    size_t end = at;
    return first_classes_[CodePoints::table().class_of(next_point(text, end))];
}

void SimplePattern::find_all(std::string_view text, std::vector<Match>& matches) const {
    Run run{text, kStepsMin + kStepsPerByte * text.size()};
    size_t at = 0;
    while (at < text.size()) {
        size_t end = kNoMatch;
        for (uint32_t left = alternatives_at(text, at); left != 0; left &= left - 1) {
            end = end_of(run, program_.heads[static_cast<size_t>(std::countr_zero(left))], at);
            if (end != kNoMatch) break;
        }
        if (end == kNoMatch) {
            (void)next_point(text, at);
            continue;
        }
        matches.push_back({static_cast<uint32_t>(at), static_cast<uint32_t>(end)});
        at = end;
    }
}

}  // namespace dslaunch::text
