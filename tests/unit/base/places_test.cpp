#include "support/places.h"

#include "support/catch.h"
#include "support/child.h"

namespace dslaunch::test {

TEST_CASE("tests that were built elsewhere find sources and programs where variables say") {
    const auto places = [] { return fmt::format("{} {}", source_dir(), binary_dir()); };
    const auto with = [&](const char* sources, const char* programs) {
        return in_child([&] {
                   ::setenv("DSL_SOURCE_DIR", sources, 1);
                   ::setenv("DSL_BIN", programs, 1);
                   return places();
               })
            .text;
    };
    CHECK(with("/there", "/there/bin") == "/there /there/bin");
    const std::string built = in_child([&] {
                                  ::unsetenv("DSL_SOURCE_DIR");
                                  ::unsetenv("DSL_BIN");
                                  return places();
                              }).text;
    CHECK(built.ends_with("/bin"));
    CHECK(with("", "") == built);
}

}  // namespace dslaunch::test
