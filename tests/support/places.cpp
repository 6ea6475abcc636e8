#include "support/places.h"

namespace dslaunch::test {

const char* source_dir() {
    return DSL_SOURCE_DIR;
}

const char* binary_dir() {
    return DSL_BINARY_DIR;
}

}  // namespace dslaunch::test
