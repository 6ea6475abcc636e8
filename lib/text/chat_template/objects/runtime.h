// What filters, tests and methods see of the interpreter: the meter, and how to call what a
// template calls.
#pragma once

#include "text/chat_template/values/value.h"

#include <ctime>
#include <functional>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace dslaunch::text::jinja {

struct Arguments {
    Values positional;
    std::vector<std::pair<std::string, Value>> named;
};

class Runtime {
  public:
    explicit Runtime(const Limits& limits) : meter_(limits) {}
    virtual ~Runtime() = default;

    [[nodiscard]] Meter& meter() { return meter_; }
    // What CALLEE gives. Throws Fault: it cannot be called, or it failed.
    [[nodiscard]] virtual Value call(const Value& callee, Arguments arguments) = 0;
    // By the names of filters and tests. Throws Fault for an unknown one.
    [[nodiscard]] virtual Value filter(std::string_view name, const Value& input,
                                       Arguments arguments) = 0;
    [[nodiscard]] virtual bool test(std::string_view name, const Value& input,
                                    Arguments arguments) = 0;
    // A namespace that lives until the rendering ends, as it may hold itself.
    [[nodiscard]] virtual Value new_namespace() = 0;
    // The time that the template takes for now.
    [[nodiscard]] virtual std::tm now() const = 0;

  private:
    Meter meter_;
};

struct Function : Object {
    std::string name;
    std::function<Value(Runtime&, Arguments&)> run;
    std::vector<std::pair<std::string, Value>> attributes;  // beside its name
};
// A function that may hold values as deep as DEPTH.
[[nodiscard]] inline Value new_function(Meter* meter, std::string name, int depth,
                                        std::function<Value(Runtime&, Arguments&)> run) {
    auto function = make_object<Function>(meter, 128);
    function->name = std::move(name);
    function->depth = deeper(depth);
    function->run = std::move(run);
    return Value::of(Kind::kFunction, std::move(function));
}

// The values of ARGUMENTS in the order of NAMES, nullptr for one that is not given; those from the
// number REQUIRED on may be left out. A name that begins with `_` is given by place only. Throws
// Fault naming WHO is called. The pointers live as long as ARGUMENTS.
[[nodiscard]] std::vector<const Value*> bind(std::string_view who, const Arguments& arguments,
                                             std::initializer_list<std::string_view> names,
                                             size_t required);

// VALUE as a whole number, FALLBACK for nullptr. Throws Fault for other kinds.
[[nodiscard]] int64_t whole_number(std::string_view who, const Value* value, int64_t fallback = 0);
// The text of VALUE. Throws Fault for other kinds.
[[nodiscard]] const std::string& required_text(std::string_view who, const Value& value);

}  // namespace dslaunch::text::jinja
