// Defines the macro DSL_CHECK, which checks a condition that only a bug in this program can make
// false. If the condition is false, the macro prints its source location and aborts. Release builds
// check the conditions too.
#pragma once

#include <fmt/core.h>

#include <string>

namespace dslaunch::detail {

// Prints the source location, CONDITION and MESSAGE to stderr, then aborts.
[[noreturn]] void check_failed(const char* file, int line, const char* condition,
                               const std::string& message);

}  // namespace dslaunch::detail

// Usage: DSL_CHECK(condition, "format", args...). The macro expands to one conditional expression,
// so that compilers know, even without optimization, that DSL_CHECK(false, ...) does not return.
#define DSL_CHECK(condition, ...)                                                   \
    ((condition) ? static_cast<void>(0)                                             \
                 : ::dslaunch::detail::check_failed(__FILE__, __LINE__, #condition, \
                                                    ::fmt::format(__VA_ARGS__)))
