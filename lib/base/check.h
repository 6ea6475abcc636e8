// DSL_CHECK: a broken invariant is a bug of ours; it prints where and aborts, in every build.
#pragma once

#include <fmt/core.h>

#include <string>

namespace dslaunch::detail {

[[noreturn]] void check_failed(const char* file, int line, const char* condition,
                               const std::string& message);

}  // namespace dslaunch::detail

// DSL_CHECK(condition, "format", args...)
#define DSL_CHECK(condition, ...)                                                          \
    do {                                                                                   \
        if (!(condition)) [[unlikely]]                                                     \
            ::dslaunch::detail::check_failed(__FILE__, __LINE__, #condition,               \
                                             ::fmt::format(__VA_ARGS__));                  \
    } while (false)
