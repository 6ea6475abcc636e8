// Where the sources and the built programs of this clone lie, without a slash at the end.
#pragma once

namespace dslaunch::test {

[[nodiscard]] const char* source_dir();
[[nodiscard]] const char* binary_dir();

}  // namespace dslaunch::test
