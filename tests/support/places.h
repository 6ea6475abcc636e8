// Where the sources and the built programs of this clone lie, without a slash at the end. The
// variables DSL_SOURCE_DIR and DSL_BIN say it for programs that were built elsewhere.
#pragma once

namespace dslaunch::test {

[[nodiscard]] const char* source_dir();
[[nodiscard]] const char* binary_dir();

}  // namespace dslaunch::test
