#include "text/chat_template/objects/slices.h"

#include "text/chat_template/values/points.h"

#include <fmt/format.h>

#include <algorithm>

namespace dslaunch::text::jinja {
namespace {

bool is_bound_given(const Value& bound) {
    if (bound.is(Kind::kNone)) return false;
    if (bound.is_integral()) return true;
    const std::string name = bound.undefined_name();
    throw Fault(name.empty() ? fmt::format("a slice's bound is of type {}", type_name(bound))
                             : fmt::format("'{}' is undefined", name));
}

struct Stride {
    int64_t start, stop, step, count;
};

// As Python's slice.indices().
Stride stride_of(int64_t length, const Value& start, const Value& stop, const Value& step) {
    int64_t by = is_bound_given(step) ? step.integral() : 1;
    if (by == 0) throw Fault("a slice has the step 0");
    by = std::clamp<int64_t>(by, -INT64_MAX, INT64_MAX);
    const int64_t low = by < 0 ? -1 : 0;
    const int64_t high = by < 0 ? length - 1 : length;
    const auto place = [&](const Value& bound, int64_t fallback) {
        if (!is_bound_given(bound)) return fallback;
        int64_t at = bound.integral();
        if (at < 0) at += length;
        return std::clamp(at, low, high);
    };
    const int64_t from = place(start, by < 0 ? high : low);
    const int64_t to = place(stop, by < 0 ? low : high);
    int64_t count = 0;
    if (by > 0 && from < to) count = (to - from - 1) / by + 1;
    if (by < 0 && to < from) count = (from - to - 1) / -by + 1;
    return {from, to, by, count};
}

Value text_slice(Meter& meter, const Value& value, const Stride& stride) {
    const Text& text = value.text_object();
    meter.step_text(text.text.size());
    std::string part;
    if (stride.step == 1 && text.is_ascii()) {
        part = text.text.substr(size_t(stride.start), size_t(stride.count));
    } else if (stride.step == 1) {
        const size_t begin = point_offset(text.text, stride.start);
        const std::string_view rest = std::string_view(text.text).substr(begin);
        part = rest.substr(0, point_offset(rest, stride.count));
    } else {
        std::vector<size_t> offsets;
        for (size_t i = 0; i < text.text.size(); i += point_bytes(text.text[i]))
            offsets.push_back(i);
        for (int64_t i = 0, at = stride.start; i < stride.count; ++i, at += stride.step) {
            const size_t offset = offsets[size_t(at)];
            part += text.text.substr(offset, point_bytes(text.text[offset]));
        }
    }
    return new_text(&meter, std::move(part), text.is_safe);
}

}  // namespace

Value slice_of(Meter& meter, const Value& value, const Value& start, const Value& stop,
               const Value& step) {
    const bool is_range = value.is(Kind::kRange);
    if (!value.is(Kind::kText) && !value.is_sequence() && !is_range)
        throw Fault(fmt::format("a value of type {} has no slices", type_name(value)));
    const Stride stride = stride_of(length_of(value).value_or(0), start, stop, step);
    if (value.is(Kind::kText)) return text_slice(meter, value, stride);
    if (is_range) {
        const Range& range = value.as<Range>();
        const auto at = [&](int64_t index) {
            int64_t number = 0;
            if (__builtin_mul_overflow(range.step, index, &number) ||
                __builtin_add_overflow(range.start, number, &number))
                throw Fault("a slice of a range ends beyond 64 bits");
            return number;
        };
        int64_t by = 0;
        if (__builtin_mul_overflow(range.step, stride.step, &by))
            throw Fault("a slice of a range has a step that does not fit 64 bits");
        return new_range(&meter, at(stride.start), at(stride.stop), by);
    }
    const Values& items = value.items();
    Values part;
    part.reserve(size_t(stride.count));
    for (int64_t i = 0, at = stride.start; i < stride.count; ++i, at += stride.step)
        part.push_back(items[size_t(at)]);
    return value.is(Kind::kList) ? new_list(&meter, std::move(part))
                                 : new_tuple(&meter, std::move(part));
}

Value element_of(Meter& meter, const Value& value, int64_t index) {
    const int64_t length = length_of(value).value_or(0);
    if (index < 0) index += length;
    if (index < 0 || index >= length) return {};
    if (value.is_sequence()) return value.items()[size_t(index)];
    if (value.is(Kind::kRange)) {
        const Range& range = value.as<Range>();
        return Value::integer(range.start + range.step * index);
    }
    if (!value.is(Kind::kText)) return {};
    const Text& text = value.text_object();
    if (text.is_ascii()) return new_text(&meter, text.text.substr(size_t(index), 1));
    meter.step_text(text.text.size());
    const size_t at = point_offset(text.text, index);
    return new_text(&meter, text.text.substr(at, point_bytes(text.text[at])));
}

TextPart part_of(const Text& text, const Value* start, const Value* stop) {
    const auto place = [&](const Value* bound, int64_t fallback) {
        if (bound == nullptr || !is_bound_given(*bound)) return fallback;
        int64_t at = bound->integral();
        if (at < 0) at = std::max<int64_t>(0, at + text.points);
        return at;
    };
    const int64_t from = place(start, 0);
    const int64_t to = std::min(place(stop, text.points), text.points);
    if (from > to) return {{}, from, false};
    std::string_view part = text.text;
    if (text.is_ascii()) return {part.substr(size_t(from), size_t(to - from)), from, true};
    part.remove_prefix(point_offset(part, from));
    return {part.substr(0, point_offset(part, to - from)), from, true};
}

}  // namespace dslaunch::text::jinja
