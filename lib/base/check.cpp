#include "base/check.h"

#include <cstdio>
#include <cstdlib>

namespace dslaunch::detail {

void check_failed(const char* file, int line, const char* condition, const std::string& message) {
    const std::string text =
        fmt::format("{}:{}: internal error: {} [{}]\n", file, line, message, condition);
    std::fwrite(text.data(), 1, text.size(), stderr);
    std::fflush(stderr);
    std::abort();
}

}  // namespace dslaunch::detail
