// The variable `loop` of a `for`: where it is, and a look at the next element.
#pragma once

#include "text/chat_template/objects/runtime.h"

#include <functional>
#include <string_view>

namespace dslaunch::text::jinja {

class LoopState : public Object {
  public:
    // Goes over SOURCE. Throws Fault when that cannot be.
    void begin(Runtime& runtime, const Value& source, int depth0);
    // To the next element. False: there is none.
    [[nodiscard]] bool advance(Value& value);
    // Lets go of all values: the loop is over.
    void end();
    // `loop.NAME`, undefined for a name that it does not have. SELF: the value of this loop.
    [[nodiscard]] Value attribute(Runtime& runtime, const Value& self, std::string_view name);
    [[nodiscard]] int depth0() const { return depth0_; }

    // What `loop(iterable)` runs in a `recursive` loop.
    std::function<Value(const Value& iterable)> recurse;

  private:
    [[nodiscard]] bool look_ahead();
    [[nodiscard]] int64_t length(Runtime& runtime);
    [[nodiscard]] Value cycle(const Arguments& arguments) const;
    [[nodiscard]] Value changed(Runtime& runtime, const Arguments& arguments);

    Value source_;
    Cursor cursor_;
    Value after_, now_, before_, last_changed_;
    bool has_after_ = false;
    bool has_changed_ = false;
    int64_t index0_ = -1;
    int64_t length_ = -1;
    int depth0_ = 0;
};

}  // namespace dslaunch::text::jinja
