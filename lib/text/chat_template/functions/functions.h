// The filters and tests of Jinja2, transformers' `tojson`, the methods and attributes of Python's
// values, and the global functions, as far as chat templates use them. Known names that are not
// supported are refused with a message that names them. All throw Fault.
#pragma once

#include <deque>
#include <functional>
#include <string>
#include <string_view>

#include "text/chat_template/functions/native.h"

namespace dslaunch::text::jinja {

// Returns `input | name(arguments)`.
[[nodiscard]] Value apply_filter(Runtime& runtime, std::string_view name, const Value& input,
                                 const Arguments& arguments);
// Returns `input is name(arguments)`.
[[nodiscard]] bool apply_test(Runtime& runtime, std::string_view name, const Value& input,
                              const Arguments& arguments);

// Returns the method NAME of SELF's kind, or nullptr if it has none.
[[nodiscard]] const Native* find_method(const Value& self, std::string_view name);
// Returns true if SELF's kind has a method NAME that the sandbox hides, such as list.append.
[[nodiscard]] bool is_hidden_method(const Value& self, std::string_view name);
// Returns true if Python has a method NAME of SELF's kind that is not supported here.
[[nodiscard]] bool is_refused_method(const Value& self, std::string_view name);
// Returns the global function NAME, or nullptr if there is none.
[[nodiscard]] const Native* find_global(std::string_view name);

// Returns `of.name`: a method or field if there is one, else the value of a key, else undefined. If
// the result is undefined, NAME must outlive it.
[[nodiscard]] Value attribute_of(Runtime& runtime, const Value& of, const std::string& name);
// Returns `of[key]`: the value of a key or index if there is one, else a method or field.
[[nodiscard]] Value item_of(Runtime& runtime, const Value& of, const Value& key);
// Sets the field NAME of a namespace.
void set_field(Namespace& fields, const std::string& name, Value value);

// Return the results of `'%s is %d' % values` and `'{} {name}'.format(…)`. Only plain fields are
// supported: %s, %d, {}, {0}, {name} and {name:d}.
[[nodiscard]] Value percent_format(Runtime& runtime, const Value& format, const Value& values);
[[nodiscard]] Value brace_format(Runtime& runtime, const Value& format, const Given& given);

// Returns TEXT with OLD replaced by BY, at most COUNT times; -1 means everywhere.
[[nodiscard]] std::string replaced(Meter& meter, std::string_view text, std::string_view old,
                                   std::string_view by, int64_t count);
// Returns the lines of TEXT, with their line ends if KEEPS_ENDS is true.
[[nodiscard]] Values split_lines(Meter& meter, std::string_view text, bool keeps_ends);

// The variable `loop` in a `for`.
class LoopState : public Object {
  public:
    // A function that gives the elements one by one, and returns false if there are no more.
    std::function<bool(Value&)> next;

    // Goes to the next element. Returns false if there is none.
    [[nodiscard]] bool advance(Value& value);
    // Ends the loop, and releases all values.
    void end();
    // Returns `loop.NAME`, or undefined if `loop` has no such attribute.
    [[nodiscard]] Value attribute(Meter& meter, std::string_view name);

  private:
    [[nodiscard]] bool look_ahead();

    std::deque<Value> ahead_;  // elements that were read ahead of their turn
    Value now_, before_;
    int64_t index0_ = -1;
};

}  // namespace dslaunch::text::jinja
