#include "support/places.h"

#include <cstdlib>

namespace dslaunch::test {

namespace {

const char* given_or(const char* variable, const char* built) {
    const char* const given = std::getenv(variable);
    return given != nullptr && *given != '\0' ? given : built;
}

}  // namespace

const char* source_dir() {
    return given_or("DSL_SOURCE_DIR", DSL_SOURCE_DIR);
}

const char* binary_dir() {
    return given_or("DSL_BIN", DSL_BINARY_DIR);
}

}  // namespace dslaunch::test
