// The common form of filters, methods and global functions of templates: how they are called, and
// the part of a rendering that they can use.
#pragma once

#include <array>
#include <ctime>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/chat_template/values/values.h"

namespace dslaunch::text::jinja {

// The state of one rendering. Used by one thread.
class Runtime {
  public:
    Runtime(const Limits& limits, const std::tm& now) : meter_(limits), now_(now) {}
    Runtime(const Runtime&) = delete;
    Runtime& operator=(const Runtime&) = delete;
    // Clears the namespaces, because a namespace may contain itself.
    ~Runtime() {
        for (const auto& held : namespaces_) held->fields.clear();
    }

    // Returns the meter that counts everything that the rendering makes.
    [[nodiscard]] Meter& meter() { return meter_; }
    // Returns the time that the template uses as the current time.
    [[nodiscard]] const std::tm& now() const { return now_; }
    // Makes a namespace that lives until the rendering ends.
    [[nodiscard]] Value new_namespace();

  private:
    Meter meter_;
    std::tm now_;
    std::vector<std::shared_ptr<Namespace>> namespaces_;  // shared with the values that name them
};

// The arguments of a call as the template writes them.
struct Arguments {
    Values positional;
    std::vector<std::pair<std::string, Value>> named;
};

// A macro, or a method of a value. `depth` is the depth of the values that RUN refers to.
struct Function : Object {
    std::string name;
    std::function<Value(Runtime&, Arguments&)> run;
};
// Returns a function that calls RUN. METER counts the function; if METER is null, nothing counts
// it. DEPTH is the depth of the values that RUN refers to. Throws Fault if a limit is exceeded.
[[nodiscard]] Value new_function(Meter* meter, std::string name, int depth,
                                 std::function<Value(Runtime&, Arguments&)> run);

// The arguments of one call. Argument I belongs to name I in the called function's list of names.
// The functions that read an argument throw Fault if it has another type.
class Given {
  public:
    Given(std::string_view who, const Arguments& arguments) : who_(who), all_(arguments) {}

    // Returns the name of the called function, for messages.
    [[nodiscard]] std::string_view who() const { return who_; }
    // Returns the arguments as the call gave them, without the function's names for them.
    [[nodiscard]] const Arguments& all() const { return all_; }
    // Returns argument I, or nullptr if it is not given.
    [[nodiscard]] const Value* operator[](size_t i) const { return bound_[i]; }
    [[nodiscard]] bool is_set(size_t i) const;  // given, and not none
    [[nodiscard]] bool is_on(size_t i) const;   // given, and true
    // Returns argument I, or FALLBACK if it is not given.
    [[nodiscard]] int64_t integer(size_t i, int64_t fallback = 0) const;
    // REQUIRES: argument I is given.
    [[nodiscard]] const std::string& text(size_t i) const;

  private:
    friend Value call_native(Runtime&, const struct Native&, const Value&, const Arguments&);
    std::string_view who_;
    const Arguments& all_;
    std::array<const Value*, 4> bound_{};
};

// A filter, method or global function that is written in C++, with its arguments.
struct Native {
    std::string_view name;
    Value (*run)(Runtime& runtime, const Value& self, const Given& given) = nullptr;
    // The names of the arguments. The first REQUIRED of them must be given. An argument whose name
    // begins with `_` can be given by position only. "*" alone means that the function reads its
    // arguments from Given::all().
    std::array<std::string_view, 4> names{};
    size_t required = 0;
};

// Returns the result of FUNCTION for SELF. Throws Fault if it does not accept the arguments, or
// fails.
[[nodiscard]] Value call_native(Runtime& runtime, const Native& function, const Value& self,
                                const Arguments& arguments);
// Returns the row NAME of TABLE, or nullptr if there is none.
[[nodiscard]] const Native* find_native(std::span<const Native> table, std::string_view name);

// Returns the text of VALUE. If VALUE is not a string, throws Fault naming WHO.
[[nodiscard]] const std::string& required_text(std::string_view who, const Value& value);

}  // namespace dslaunch::text::jinja
