// The common form of filters, methods and global functions of templates: their calls, and the part
// of a rendering that they see.
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

#include "text/chat_template/values/value.h"

namespace dslaunch::text::jinja {

// A rendering. One thread's.
class Runtime {
  public:
    Runtime(const Limits& limits, const std::tm& now) : meter_(limits), now_(now) {}
    Runtime(const Runtime&) = delete;
    Runtime& operator=(const Runtime&) = delete;
    // A namespace may hold itself.
    ~Runtime() {
        for (const auto& held : namespaces_) held->fields.clear();
    }

    [[nodiscard]] Meter& meter() { return meter_; }
    // Returns the time that the template takes for now.
    [[nodiscard]] const std::tm& now() const { return now_; }
    // Makes a namespace that lives until the rendering ends.
    [[nodiscard]] Value new_namespace();

  private:
    Meter meter_;
    std::tm now_;
    std::vector<std::shared_ptr<Namespace>> namespaces_;  // shared with the values that name them
};

struct Arguments {
    Values positional;
    std::vector<std::pair<std::string, Value>> named;
};

// A macro, or a method of a value; what RUN holds may be as deep as `depth` says.
struct Function : Object {
    std::string name;
    std::function<Value(Runtime&, Arguments&)> run;
};
[[nodiscard]] Value new_function(Meter* meter, std::string name, int depth,
                                 std::function<Value(Runtime&, Arguments&)> run);

// The arguments of one call by the names that the callee has for them. Functions that need another
// kind of value throw Fault.
class Given {
  public:
    Given(std::string_view who, const Arguments& arguments) : who_(who), all_(arguments) {}

    [[nodiscard]] std::string_view who() const { return who_; }
    [[nodiscard]] const Arguments& all() const { return all_; }
    // Returns argument I, nullptr when it is not given.
    [[nodiscard]] const Value* operator[](size_t i) const { return bound_[i]; }
    [[nodiscard]] bool is_set(size_t i) const;  // given, and not none
    [[nodiscard]] bool is_on(size_t i) const;   // given, and true
    [[nodiscard]] int64_t integer(size_t i, int64_t fallback = 0) const;
    // REQUIRES: argument I is given.
    [[nodiscard]] const std::string& text(size_t i) const;

  private:
    friend Value call_native(Runtime&, const struct Native&, const Value&, const Arguments&);
    std::string_view who_;
    const Arguments& all_;
    std::array<const Value*, 4> bound_{};
};

struct Native {
    std::string_view name;
    Value (*run)(Runtime& runtime, const Value& self, const Given& given) = nullptr;
    // The names of its arguments, the first REQUIRED of which must be given. A name that begins
    // with `_` is given by place only. "*" alone: it takes what it likes from Given::all().
    std::array<std::string_view, 4> names{};
    size_t required = 0;
};

// Returns the result of FUNCTION on SELF. Throws Fault if it does not take the arguments, or fails.
[[nodiscard]] Value call_native(Runtime& runtime, const Native& function, const Value& self,
                                const Arguments& arguments);
// Returns the row of TABLE with NAME, nullptr if there is none.
[[nodiscard]] const Native* find_native(std::span<const Native> table, std::string_view name);

// Returns the text of VALUE. Throws Fault naming WHO for other kinds.
[[nodiscard]] const std::string& required_text(std::string_view who, const Value& value);

}  // namespace dslaunch::text::jinja
