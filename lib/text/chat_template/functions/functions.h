// The filters and tests of Jinja2, transformers' `tojson`, the methods and attributes of Python's
// values and the global functions, as far as chat templates use them. Known names that are not
// supported are refused by name. All throw Fault.
#pragma once

#include <deque>
#include <functional>
#include <string>
#include <string_view>

#include "text/chat_template/functions/native.h"

namespace dslaunch::text::jinja {

[[nodiscard]] Value apply_filter(Runtime& runtime, std::string_view name, const Value& input,
                                 const Arguments& arguments);
[[nodiscard]] bool apply_test(Runtime& runtime, std::string_view name, const Value& input,
                              const Arguments& arguments);

// Returns the method NAME of SELF's kind, nullptr when it has none.
[[nodiscard]] const Native* find_method(const Value& self, std::string_view name);
// Returns true when SELF's kind has a method NAME that the sandbox hides, as list.append.
[[nodiscard]] bool is_hidden_method(const Value& self, std::string_view name);
// Returns true when Python has a method NAME of SELF's kind that is not supported here.
[[nodiscard]] bool is_refused_method(const Value& self, std::string_view name);
// Returns the global function NAME, nullptr when there is none.
[[nodiscard]] const Native* find_global(std::string_view name);

// Returns `of.name`: a method or field first, then a key. Undefined when there is neither; NAME
// must then outlive the value.
[[nodiscard]] Value attribute_of(Runtime& runtime, const Value& of, const std::string& name);
// Returns `of[key]`: a key or index first, then a method or field.
[[nodiscard]] Value item_of(Runtime& runtime, const Value& of, const Value& key);
// Sets the field NAME of a namespace.
void set_field(Namespace& fields, const std::string& name, Value value);

// Return `'%s is %d' % values` and `'{} {name}'.format(…)`, with plain fields alone: %s, %d, {},
// {0}, {name} and {name:d}.
[[nodiscard]] Value percent_format(Runtime& runtime, const Value& format, const Value& values);
[[nodiscard]] Value brace_format(Runtime& runtime, const Value& format, const Given& given);

// Returns TEXT with BY in the place of OLD, COUNT times at most; -1: everywhere.
[[nodiscard]] std::string replaced(Meter& meter, std::string_view text, std::string_view old,
                                   std::string_view by, int64_t count);
// Returns the lines of TEXT, with their ends if KEEPS_ENDS.
[[nodiscard]] Values split_lines(Meter& meter, std::string_view text, bool keeps_ends);

// The variable `loop` of a `for`.
class LoopState : public Object {
  public:
    // NEXT gives the elements one by one; it returns false when there are no more.
    std::function<bool(Value&)> next;

    // Goes to the next element. Returns false when there is none.
    [[nodiscard]] bool advance(Value& value);
    // Ends the loop, and lets go of all values.
    void end();
    // Returns `loop.NAME`, undefined for a name that it does not have.
    [[nodiscard]] Value attribute(Meter& meter, std::string_view name);

  private:
    [[nodiscard]] bool look_ahead();

    std::deque<Value> ahead_;  // elements that were asked for before their turn
    Value now_, before_;
    int64_t index0_ = -1;
};

}  // namespace dslaunch::text::jinja
