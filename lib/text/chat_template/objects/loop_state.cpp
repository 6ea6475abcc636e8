#include "text/chat_template/objects/loop_state.h"

#include "text/chat_template/values/compare.h"

#include <utility>

namespace dslaunch::text::jinja {

void LoopState::begin(Runtime& runtime, const Value& source, int depth0) {
    source_ = source;
    cursor_ = Cursor(runtime.meter(), source);
    depth0_ = depth0;
}

bool LoopState::look_ahead() {
    if (!has_after_) has_after_ = cursor_.next(after_);
    return has_after_;
}

bool LoopState::advance(Value& value) {
    if (!look_ahead()) return false;
    value = std::exchange(after_, {});
    has_after_ = false;
    ++index0_;
    before_ = std::exchange(now_, value);
    return true;
}

void LoopState::end() {
    source_ = after_ = now_ = before_ = last_changed_ = {};
    cursor_ = {};
    has_after_ = false;
    recurse = nullptr;
}

int64_t LoopState::length(Runtime& runtime) {
    if (length_ >= 0) return length_;
    if (const auto known = length_of(source_)) return length_ = *known;
    Values rest;
    for (Value item; cursor_.next(item);) {
        runtime.meter().step();
        rest.push_back(std::move(item));
    }
    length_ = int64_t(rest.size()) + index0_ + 1 + int64_t(has_after_);
    cursor_ = Cursor(runtime.meter(), new_list(&runtime.meter(), std::move(rest)));
    return length_;
}

Value LoopState::cycle(const Arguments& arguments) const {
    if (arguments.positional.empty() || !arguments.named.empty())
        throw Fault("loop.cycle() needs values, and without names");
    return arguments.positional[size_t(index0_) % arguments.positional.size()];
}

Value LoopState::changed(Runtime& runtime, const Arguments& arguments) {
    if (!arguments.named.empty()) throw Fault("loop.changed() takes values without names");
    Value now = new_tuple(&runtime.meter(), arguments.positional);
    if (has_changed_ && are_equal(runtime.meter(), last_changed_, now))
        return Value::boolean(false);
    last_changed_ = std::move(now);
    has_changed_ = true;
    return Value::boolean(true);
}

Value LoopState::attribute(Runtime& runtime, const Value& self, std::string_view name) {
    if (name == "index") return Value::integer(index0_ + 1);
    if (name == "index0") return Value::integer(index0_);
    if (name == "first") return Value::boolean(index0_ == 0);
    if (name == "last") return Value::boolean(!look_ahead());
    if (name == "length") return Value::integer(length(runtime));
    if (name == "revindex") return Value::integer(length(runtime) - index0_);
    if (name == "revindex0") return Value::integer(length(runtime) - index0_ - 1);
    if (name == "depth") return Value::integer(depth0_ + 1);
    if (name == "depth0") return Value::integer(depth0_);
    if (name == "previtem") return index0_ == 0 ? Value() : before_;
    if (name == "nextitem") return look_ahead() ? after_ : Value();
    if (name == "cycle" || name == "changed") {
        const bool is_cycle = name == "cycle";
        return new_function(&runtime.meter(), std::string(name), self.depth(),
                            [self, is_cycle](Runtime& inner, Arguments& arguments) {
                                LoopState& loop = self.as<LoopState>();
                                return is_cycle ? loop.cycle(arguments)
                                                : loop.changed(inner, arguments);
                            });
    }
    return {};
}

}  // namespace dslaunch::text::jinja
